// The tensors of a launch as sets of valid elements. The kernel works on the caller's memory, so
// every access is checked before it happens.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "codegen/kernel_source.h"
#include "runtime/emulator/emulator_error.h"
#include "runtime/emulator/turns.h"
#include "runtime/tensor.h"

namespace flashcore {

/// What happened to an output.
struct OutputCoverage {
  std::string name;
  std::int64_t elements = 0;  ///< distinct ones
  std::int64_t unwritten = 0;
  std::int64_t rewritten = 0;  ///< writes after an element's first
};

/// Shared by all blocks of a run; safe from several OS threads.
class GlobalMemory {
 public:
  /// With `early` the launch may start beside the end of the one in front of it.
  GlobalMemory(std::span<const TensorArgument> arguments, std::span<const TensorView> tensors,
               bool early = false);

  [[nodiscard]] bool early() const { return early_; }

  /// Throws a Fault unless the address is a multiple of `alignment` and all bytes are valid
  /// elements of one tensor. An element of an output may be read by the block that wrote it.
  void check_read(const void* source, int bytes, int alignment, int block, int line) const;
  /// The same for a write to an output, and notes it.
  void note_write(const void* target, int bytes, int alignment, int block, int line);
  void note_write(const void* target, int bytes, int block, int line) {
    note_write(target, bytes, bytes, block, line);
  }

  /// Adds to elements of an output, which begin at a multiple of `alignment` bytes. With `known`,
  /// which holds what block `block` knows of the notes of others, another block's earlier addition
  /// has to be behind a note that it knows.
  void add(float* target, const float* values, int count, int alignment, int block,
           const KnownNotes* known, int line);
  Turns& turns() { return turns_; }
  /// An element of a tensor, as messages write it.
  [[nodiscard]] std::string describe(const void* element) const;

  /// The next number of the launch's tile counter, which is 0 again after `count` of them.
  int claim_tile(int count);
  /// What the launch has left there for the next.
  [[nodiscard]] int tiles_drawn() const { return claimed_; }

  [[nodiscard]] std::vector<OutputCoverage> coverage() const;

 private:
  struct Dimension {
    std::int64_t extent, stride;
    std::int64_t reach;  ///< largest offset that this and all inner dimensions make
    int number;          ///< in the author's order
  };
  struct Region {
    std::string name;
    std::uintptr_t base = 0;
    std::int64_t span = 0;  ///< elements from the first to the last one
    int element_bytes = 0;
    bool output = false;
    std::vector<Dimension> dims;                           ///< by stride, largest first
    std::unique_ptr<std::atomic<std::uint32_t>[]> writer;  ///< of outputs: block + 1, or 0
    std::unique_ptr<std::atomic<std::int64_t>> rewritten;
    /// Where something was added: how many notes the writer had made before.
    std::unique_ptr<std::map<std::int64_t, std::uint32_t>> noted;

    /// How many elements from `offset` on, along the innermost dimension, are valid.
    [[nodiscard]] std::int64_t run(std::int64_t offset, std::size_t from = 0) const;
    [[nodiscard]] bool contains_all(std::int64_t offset, std::int64_t count) const;
    [[nodiscard]] std::string describe(std::int64_t offset) const;
  };
  static Region region_of(const TensorArgument& argument, const TensorView& view);

  struct Hit {
    const Region* region;
    std::int64_t offset, count;  ///< elements
  };

  [[nodiscard]] Hit find(const void* pointer, int bytes, int alignment, int line,
                         bool for_write) const;
  [[nodiscard]] std::string explain(std::uintptr_t address, int bytes) const;

  std::vector<Region> regions_;
  bool early_;
  std::mutex adding_;
  Turns turns_;
  std::atomic<int> claimed_ = 0;
};

}  // namespace flashcore
