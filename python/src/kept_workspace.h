// The memory between the kernels of a call, kept for the next: a caching allocator takes two
// microseconds to find some, and a quarter of a millisecond where it asks the driver.
#pragma once

#include <cstddef>
#include <functional>

#include <pybind11/pybind11.h>

#include "runtime/cuda/driver.h"

namespace flashcore::python {

/// Memory of one launch of several kernels on a stream, torch's current one or a caller's. Work on a
/// stream runs in the order in which it was queued, so each stream has one piece for all launches, and
/// while a thread queues its kernels, others that queue theirs on the same stream get memory of their
/// own. So do launches that a graph captures: it may run beside others. Needs the GIL.
class KeptWorkspace {
 public:
  /// Each stream has this much at least, and what is more than the most is not kept.
  static constexpr std::size_t least = std::size_t{16} << 20, most = std::size_t{64} << 20;

  /// Makes a tensor of torch's own, of so many bytes, that torch allocates for the launch's stream.
  using Allocate = std::function<pybind11::object(std::size_t bytes)>;

  KeptWorkspace(int device, CudaStream stream, std::size_t bytes, const Allocate& make_tensor);
  KeptWorkspace(const KeptWorkspace&) = delete;
  KeptWorkspace& operator=(const KeptWorkspace&) = delete;
  ~KeptWorkspace();

  /// At a multiple of ModulePlan::workspace_alignment.
  [[nodiscard]] void* data() const { return memory_.data; }

 private:
  struct Memory {
    pybind11::object tensor;
    void* data = nullptr;
    std::size_t bytes = 0;
  };
  /// What a stream has while no thread queues its kernels there.
  struct Slot {
    int device = -1;
    unsigned long long stream = 0;  ///< its number, which no other stream ever has
    Memory memory;
  };
  static Slot& slot_of(int device, unsigned long long stream);
  static Memory allocate(const Allocate& make_tensor, std::size_t bytes);

  Memory memory_;
  Slot* slot_ = nullptr;  ///< to give it back to
  int device_;
  unsigned long long stream_ = 0;
};

}  // namespace flashcore::python
