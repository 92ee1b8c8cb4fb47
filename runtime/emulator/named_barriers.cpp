#include "runtime/emulator/named_barriers.h"

#include <algorithm>

#include "runtime/emulator/lanes.h"

namespace flashcore {
namespace {

constexpr int lanes = 32;

}  // namespace

std::uint32_t NamedBarriers::arrive(int number, int threads, Accessor by) {
  const auto refuse = [&](FaultKind kind, std::string why, std::string fix) {
    throw Fault{kind, by.line, std::move(why), std::move(fix), by.thread};
  };
  if (number < 1 || number > 15) {
    refuse(FaultKind::bad_operand, fmt::format("there is no barrier {}", number),
           "1 to 15; barrier 0 is that of the block, barrier()");
  }
  if (threads < lanes || threads % lanes != 0 || threads > threads_) {
    refuse(FaultKind::bad_operand,
           fmt::format("barrier {} of {} threads, in a block of {}", number, threads, threads_),
           "whole warps, no more than the block has");
  }
  shared_.start_clocks();
  Barrier& barrier = at(number);
  const int warp = by.thread / lanes;
  if (barrier.threads != 0 && barrier.threads != threads) {
    refuse(
        FaultKind::barrier_mismatch,
        fmt::format("warp {} comes to barrier {} of {} threads, while line {} makes it one of {}",
                    warp, number, threads, barrier.line, barrier.threads),
        "the same number of threads on both sides");
  }
  if (std::find(barrier.warps.begin(), barrier.warps.end(), warp) != barrier.warps.end()) {
    refuse(FaultKind::barrier_mismatch,
           fmt::format(
               "warp {} comes to barrier {} a second time before it is complete; of {} threads "
               "warps {} have come",
               warp, number, threads, ranges(barrier.warps)),
           "every warp arrives once in each phase of the barrier");
  }
  if (barrier.threads == 0) {
    barrier.threads = threads;
    barrier.line = by.line;
  }
  barrier.warps.insert(std::upper_bound(barrier.warps.begin(), barrier.warps.end(), warp), warp);
  for (int lane = 0; lane < lanes; ++lane) clocks_.release(warp * lanes + lane, barrier.gathered);
  const std::uint32_t before = barrier.complete;
  if (static_cast<int>(barrier.warps.size()) * lanes == threads) {
    barrier.over = barrier.gathered;
    barrier.threads = 0;
    barrier.warps.clear();
    ++barrier.complete;
  }
  return before;
}

std::string NamedBarriers::describe() const {
  std::string text;
  for (int number = 1; number < 16; ++number) {
    const Barrier& barrier = at(number);
    if (barrier.threads == 0) continue;
    text += fmt::format("; barrier {}: {} of {} threads have come (warps {})", number,
                        barrier.warps.size() * lanes, barrier.threads, ranges(barrier.warps));
  }
  return text;
}

}  // namespace flashcore
