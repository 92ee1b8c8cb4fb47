// Blocks that run at the same time and reach each other's shared memory: a cluster, mostly of one
// block.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/emulator/block.h"
#include "runtime/emulator/clocks.h"
#include "runtime/emulator/cluster_barrier.h"
#include "runtime/emulator/scheduler.h"

namespace flashcore {

/// Clusters run one after the other on the same stacks and the same storage. Threads are counted
/// over all blocks of the cluster: wherever it matters who did something, and in messages.
class Cluster {
 public:
  /// `enter` runs the kernel as one thread, which begins with so many registers. `run` throws
  /// Stopped when `stop` becomes true.
  Cluster(int blocks, int threads, int registers, int shared_bytes, GlobalMemory& memory,
          std::function<void()> enter, const std::atomic<bool>* stop = nullptr);

  /// Throws a Fault that names its thread.
  /// The blocks from `first` of the grid on, counted along x first, then y, then z.
  void run(int first, const GridSize& grid);
  [[nodiscard]] BankReport banks() const;

  /// The one that runs on this OS thread.
  static Cluster& current();
  [[nodiscard]] Block& running() {
    return *blocks_[static_cast<std::size_t>(scheduler_.current() / threads_)];
  }

  // For its blocks.
  [[nodiscard]] int size() const { return static_cast<int>(blocks_.size()); }
  [[nodiscard]] Block& operator[](int rank) { return *blocks_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] Scheduler& scheduler() { return scheduler_; }
  [[nodiscard]] Clocks& clocks() { return clocks_; }
  [[nodiscard]] ClusterBarrier& barrier() { return barrier_; }
  /// How many notes blocks had made when its threads last looked; whoever waits for one waits for
  /// this count to change.
  [[nodiscard]] const std::uint32_t* notes_seen() const { return &notes_seen_; }

 private:
  void run_thread();
  std::exception_ptr stuck();
  [[nodiscard]] Fault deadlock() const;

  int threads_;  ///< of a block
  std::function<void()> enter_;
  GlobalMemory& memory_;
  const std::atomic<bool>* stop_;
  std::uint32_t notes_seen_ = 0;
  Scheduler scheduler_;
  Clocks clocks_;
  ClusterBarrier barrier_;
  std::vector<std::unique_ptr<Block>> blocks_;
};

}  // namespace flashcore
