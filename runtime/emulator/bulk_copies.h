// What the copy engine does for a block: boxes of tensors to and from shared memory.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "runtime/emulator/clocks.h"
#include "runtime/emulator/global_memory.h"
#include "runtime/emulator/shared_memory.h"
#include "runtime/emulator/tensor_box.h"

namespace flashcore {

/// A load reads the tensor when it completes, a store reads shared memory when somebody waits for
/// it: the latest moments that the hardware may choose.
class BulkCopies {
 public:
  BulkCopies(int threads, GlobalMemory& memory, SharedMemory& shared, Clocks& clocks);
  void reset();

  /// Checks a load and marks its target. The mbarrier completes it.
  void begin_load(const TensorBox& box, int coordinates, int block);
  void complete(const TensorBox& box, int agent, std::int32_t time);

  void store(const TensorBox& box, int coordinates);
  void commit_stores(int thread);
  /// All but the newest `pending` groups of the thread have been read.
  void wait_stores_read(int pending, int thread, int block);
  /// Throws a Fault for a store that may still read when its thread leaves.
  void check_left(int thread) const;

 private:
  struct Group {
    std::vector<TensorBox> boxes;
    std::int32_t time;
  };
  struct Stores {
    int agent = -1;  ///< that reads for the thread, once it has stored
    std::vector<TensorBox> open;
    std::deque<Group> groups;
    std::int32_t time = 0;  ///< of the open group
  };
  void write_out(const TensorBox& box, int block);
  [[nodiscard]] Stores& stores_of(int thread) { return stores_[static_cast<std::size_t>(thread)]; }

  GlobalMemory& memory_;
  SharedMemory& shared_;
  Clocks& clocks_;
  std::vector<Stores> stores_;  ///< of each thread
  bool used_ = false;
};

}  // namespace flashcore
