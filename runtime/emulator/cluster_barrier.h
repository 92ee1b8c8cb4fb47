// The barrier of a cluster: threads arrive, and wait later.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/emulator/clocks.h"
#include "runtime/emulator/scheduler.h"
#include "runtime/emulator/shared_memory.h"

namespace flashcore {

/// A phase is over when all threads that have not left have arrived. An arrival releases what its
/// thread did, a wait acquires what the arrivals of the phase released. Threads are counted over
/// the blocks of the cluster.
class ClusterBarrier {
 public:
  ClusterBarrier(Scheduler& scheduler, Clocks& clocks) : scheduler_(scheduler), clocks_(clocks) {}
  void reset();

  /// An arrival that releases nothing says that the thread runs.
  void arrive(bool releases, Accessor by);
  void await(Accessor by);
  void leave(int number);

  /// Whether the thread knows that all threads of the cluster run.
  [[nodiscard]] bool knows_all(int thread) const {
    return threads_[static_cast<std::size_t>(thread)].waited;
  }
  /// "; the cluster's barrier: 128 of 256 threads are missing", where somebody waits at it.
  [[nodiscard]] std::string describe() const;

 private:
  struct Thread {
    bool has_to_wait = false, waited = false;
    std::uint32_t phase = 0;  ///< of its last arrival
    int line = 0;
  };
  void settle();

  Scheduler& scheduler_;
  Clocks& clocks_;
  std::vector<Thread> threads_;
  int running_ = 0,
      missing_ = 0;  ///< threads that have not left; of these, not arrived in this phase
  int arrived_ = 0;
  std::uint32_t phase_ = 0;
  Clock gathered_, over_;
};

}  // namespace flashcore
