// The numbered barriers 1 to 15, at which some warps of a block meet.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/emulator/clocks.h"
#include "runtime/emulator/emulator_error.h"
#include "runtime/emulator/shared_memory.h"

namespace flashcore {

class NamedBarriers {
 public:
  /// Of a block with so many threads.
  NamedBarriers(int threads, SharedMemory& shared, Clocks& clocks)
      : threads_(threads), shared_(shared), clocks_(clocks) {}
  void reset() { barriers_.fill({}); }

  /// The warp of `by` comes to a barrier of `threads` threads. Returns how often it was complete
  /// before.
  std::uint32_t arrive(int number, int threads, Accessor by);
  /// Leaves the value that arrive() returned when the barrier is complete.
  [[nodiscard]] const std::uint32_t* completions(int number) const { return &at(number).complete; }
  /// Behind a complete barrier.
  void acquire(int number, int thread) { clocks_.acquire(thread, at(number).over); }

  /// "; barrier 2: 128 of 256 threads have come, ...": those that are not complete.
  [[nodiscard]] std::string describe() const;

 private:
  struct Barrier {
    int threads = 0;         ///< it waits for; 0 before the first
    int line = 0;            ///< of the first
    std::vector<int> warps;  ///< that have come
    std::uint32_t complete = 0;
    Clock gathered, over;
  };
  Barrier& at(int number) { return barriers_[static_cast<std::size_t>(number)]; }
  [[nodiscard]] const Barrier& at(int number) const {
    return barriers_[static_cast<std::size_t>(number)];
  }

  int threads_;
  SharedMemory& shared_;
  Clocks& clocks_;
  std::array<Barrier, 16> barriers_;
};

}  // namespace flashcore
