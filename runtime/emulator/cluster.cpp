#include "runtime/emulator/cluster.h"

#include <exception>
#include <utility>

namespace flashcore {
namespace {

thread_local Cluster* now_running = nullptr;

}  // namespace

Cluster::Cluster(int blocks, int threads, int registers, int shared_bytes, GlobalMemory& memory,
                 std::function<void()> enter, const std::atomic<bool>* stop)
    : threads_(threads),
      enter_(std::move(enter)),
      memory_(memory),
      stop_(stop),
      scheduler_(blocks * threads, stop),
      clocks_(blocks * threads),
      barrier_(scheduler_, clocks_) {
  for (int rank = 0; rank < blocks; ++rank)
    blocks_.push_back(
        std::make_unique<Block>(*this, rank, threads, registers, shared_bytes, memory));
}

Cluster& Cluster::current() { return *now_running; }
Block& Block::current() { return now_running->running(); }

void Cluster::run(int first, const GridSize& grid) {
  now_running = this;
  barrier_.reset();
  for (int rank = 0; rank < size(); ++rank)
    blocks_[static_cast<std::size_t>(rank)]->prepare(first + rank, grid);
  // Nothing ever orders all threads of several blocks without a clock.
  if (size() > 1)
    for (const std::unique_ptr<Block>& block : blocks_) block->start_clocks();
  notes_seen_ = memory_.turns().notes();
  // The slow warp differs from block to block. In the first one it is warp 1, no thread of which
  // releases slots for its warpgroup.
  scheduler_.run([this] { run_thread(); }, [this] { return stuck(); }, first + 1);
  for (const std::unique_ptr<Block>& block : blocks_) block->finish();
}

void Cluster::run_thread() {
  try {
    enter_();
    running().leave();
    barrier_.leave(scheduler_.current());
  } catch (Fault& fault) {
    if (fault.thread < 0) fault.thread = scheduler_.current();
    throw;
  }
}

/// Nobody here can go on, unless a block elsewhere passes its turn on.
std::exception_ptr Cluster::stuck() {
  bool awaits = false;
  for (const std::unique_ptr<Block>& block : blocks_) awaits = awaits || block->awaits_turn();
  if (!awaits || !memory_.turns().await(notes_seen_, stop_))
    return std::make_exception_ptr(deadlock());
  notes_seen_ = memory_.turns().notes();
  return nullptr;
}

Fault Cluster::deadlock() const {
  int thread = 0;
  while (scheduler_.finished(thread)) ++thread;
  std::string waits = barrier_.describe();
  for (const std::unique_ptr<Block>& block : blocks_) waits += block->describe_waits();
  return {
      FaultKind::deadlock, scheduler_.wait_of(thread).line,
      "nobody can go on: " + flashcore::describe_waits(scheduler_, 0, scheduler_.threads()) + waits,
      "", thread};
}

BankReport Cluster::banks() const {
  BankReport all;
  for (const std::unique_ptr<Block>& block : blocks_) all.merge(block->banks());
  return all;
}

}  // namespace flashcore
