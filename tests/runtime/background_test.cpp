#include "runtime/background.h"

#include <atomic>
#include <chrono>
#include <future>
#include <stdexcept>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace flashcore {
namespace {

using namespace std::chrono_literals;

TEST(Background, RunsWhatIsAskedForAlsoBehindWhatFails) {
  std::promise<int> result;
  run_in_background([] { throw std::runtime_error("lost"); });
  run_in_background([&] { result.set_value(7); });
  auto future = result.get_future();
  ASSERT_EQ(future.wait_for(30s), std::future_status::ready);
  EXPECT_EQ(future.get(), 7);
}

// A child has none of its parent's threads.
TEST(Background, WorksInAForkedChild) {
  std::promise<void> ran;
  run_in_background([&] { ran.set_value(); });
  ran.get_future().wait();
  const pid_t child = fork();
  if (child == 0) {
    std::promise<void> here;
    run_in_background([&] { here.set_value(); });
    _exit(here.get_future().wait_for(30s) == std::future_status::ready ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// In a process of its own: nothing runs after it.
TEST(BackgroundDeathTest, TheEndWaitsForWhatHasBegunAndDropsTheRest) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        std::atomic<int> ended = 0;
        std::promise<void> begun;
        run_in_background([&] {
          begun.set_value();
          usleep(100'000);
          ++ended;
        });
        begun.get_future().wait();
        finish_background();
        run_in_background([&] { ended = 100; });
        usleep(50'000);
        _exit(ended == 1 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace flashcore
