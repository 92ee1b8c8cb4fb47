#include "runtime/emulator/cluster_barrier.h"

#include <utility>

#include <fmt/format.h>

namespace flashcore {

void ClusterBarrier::reset() {
  threads_.assign(static_cast<std::size_t>(scheduler_.threads()), {});
  running_ = missing_ = scheduler_.threads();
  arrived_ = 0;
  phase_ = 0;
  gathered_ = over_ = {};
}

void ClusterBarrier::arrive(bool releases, Accessor by) {
  Thread& thread = threads_[static_cast<std::size_t>(by.thread)];
  if (thread.has_to_wait)
    throw Fault{FaultKind::barrier_mismatch, by.line,
                "the thread arrives at the cluster's barrier a second time and has not waited",
                "wait_cluster() between two arrivals", by.thread};
  if (releases) clocks_.release(by.thread, gathered_);
  thread.has_to_wait = true;
  thread.phase = phase_;
  thread.line = by.line;
  ++arrived_;
  --missing_;
  settle();
}

void ClusterBarrier::await(Accessor by) {
  Thread& thread = threads_[static_cast<std::size_t>(by.thread)];
  if (!thread.has_to_wait)
    throw Fault{FaultKind::barrier_mismatch, by.line,
                "the thread waits at the cluster's barrier and has not arrived",
                "arrive_at_cluster() before the wait", by.thread};
  if (phase_ == thread.phase) scheduler_.block({"wait_cluster", by.line, &phase_, phase_});
  clocks_.acquire(by.thread, over_);
  thread.has_to_wait = false;
  thread.waited = true;
}

void ClusterBarrier::leave(int number) {
  const Thread& thread = threads_[static_cast<std::size_t>(number)];
  if (thread.has_to_wait)
    throw Fault{FaultKind::barrier_mismatch, thread.line,
                "the thread arrives at the cluster's barrier and leaves the kernel without waiting",
                "wait_cluster() behind every arrival", number};
  --running_;
  --missing_;  // who has waited is missing in the next phase
  settle();
}

void ClusterBarrier::settle() {
  if (missing_ > 0 || arrived_ == 0) return;
  over_ = std::exchange(gathered_, {});
  arrived_ = 0;
  missing_ = running_;
  ++phase_;
}

std::string ClusterBarrier::describe() const {
  return arrived_ == 0 ? ""
                       : fmt::format("; the cluster's barrier: {} of {} threads are missing",
                                     missing_, running_);
}

}  // namespace flashcore
