// Fibers that wait on counters, without a kernel.
#include "runtime/emulator/scheduler.h"

#include <memory>
#include <numeric>
#include <stdexcept>

#include <gtest/gtest.h>

namespace flashcore {
namespace {

std::exception_ptr unexpected() {
  return std::make_exception_ptr(std::logic_error("every thread waits"));
}

TEST(Scheduler, RunsEveryThreadOnceAndAgain) {
  Scheduler scheduler(70);
  for (int round = 1; round < 4; ++round) {
    std::vector<int> runs(70);
    scheduler.run([&] { ++runs[static_cast<std::size_t>(scheduler.current())]; }, unexpected);
    EXPECT_EQ(std::accumulate(runs.begin(), runs.end(), 0), 70);
    EXPECT_EQ(runs, std::vector<int>(70, 1));
  }
}

// A producer and its consumers, as phases of a barrier object will be waited for.
TEST(Scheduler, WaitEndsWhenTheCounterMoves) {
  Scheduler scheduler(64);
  std::uint32_t phase = 0;
  std::vector<int> order;
  scheduler.run(
      [&] {
        const int me = scheduler.current();
        for (int round = 0; round < 3; ++round) {
          if (me == 63) {
            order.push_back(me);
            ++phase;
            const std::uint32_t other = 0;
            if (round < 2) scheduler.block({"pause", 1, &phase, other});
          } else if (me == 0) {
            while (phase <= static_cast<std::uint32_t>(round))
              scheduler.block({"phase", 2, &phase, phase});
            order.push_back(me);
          }
        }
      },
      unexpected);
  EXPECT_EQ(order.size(), 6u);
  EXPECT_EQ(order.front(), 63);
}

// The other warps have gone as far as they can without it before the slow warp begins.
TEST(Scheduler, TheSlowWarpRunsWhereAllOthersWait) {
  Scheduler scheduler(128);
  std::uint32_t passed = 0;
  std::vector<int> order;
  const auto body = [&] {
    const int me = scheduler.current();
    if (me % 32) return;
    for (int round = 0; round < 3; ++round) order.push_back(me / 32);
    if (me == 32) ++passed;
    if (me == 96 && passed == 0) scheduler.block({"phase", 1, &passed, 0});
    if (me == 96) order.push_back(3);
  };
  scheduler.run(body, unexpected, 1);
  EXPECT_EQ(order, (std::vector<int>{0, 0, 0, 2, 2, 2, 3, 3, 3, 1, 1, 1, 3}));
}

TEST(Scheduler, SaysWhoWaitsWhereWhenNobodyCanGoOn) {
  Scheduler scheduler(40);
  const std::uint32_t never = 0;
  std::string text;
  EXPECT_THROW(scheduler.run(
                   [&] {
                     if (scheduler.current() == 4) return;
                     const int line = scheduler.current() < 32 ? 12 : 20;
                     scheduler.block({"ring slot", line, &never, never});
                   },
                   [&] {
                     text = describe_waits(scheduler, 0, 40);
                     return unexpected();
                   }),
               std::logic_error);
  EXPECT_EQ(
      text,
      "threads 4 have left the kernel; threads 0-3, 5-31 wait at ring slot, line 12; threads 32-39 "
      "wait at ring slot, line 20");
}

// An exception of one thread ends the others where they wait, with their destructors.
TEST(Scheduler, ExceptionUnwindsAllThreads) {
  Scheduler scheduler(33);
  const auto alive = std::make_shared<int>(0);
  const std::uint32_t never = 0;
  EXPECT_THROW(scheduler.run(
                   [&] {
                     const std::shared_ptr<int> mine = alive;
                     if (scheduler.current() == 32) throw std::runtime_error("stop");
                     scheduler.block({"forever", 1, &never, never});
                   },
                   unexpected),
               std::runtime_error);
  EXPECT_EQ(alive.use_count(), 1);
  int runs = 0;
  scheduler.run([&] { ++runs; }, unexpected);
  EXPECT_EQ(runs, 33);
}

}  // namespace
}  // namespace flashcore
