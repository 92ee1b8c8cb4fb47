#include "runtime/log.h"

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>

namespace flashcore {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class LogTest : public testing::Test {
 protected:
  LogTest() {
    set_log_hook([this](LogLevel level, std::string_view text) {
      heard.push_back(std::string(name_of(level)) + " " + std::string(text));
    });
  }
  ~LogTest() override { set_log_hook({}); }

  std::vector<std::string> heard;
};

TEST_F(LogTest, TheHookHearsEverything) {
  EXPECT_TRUE(log_enabled(LogLevel::debug));
  log_message(LogLevel::debug, "{} kernels", 2);
  log_message(LogLevel::warn, "full");
  EXPECT_THAT(heard, ElementsAre("debug 2 kernels", "warn full"));
}

TEST_F(LogTest, WaitsForTheOutermostDeferral) {
  {
    const HookDeferral outer;
    {
      const HookDeferral inner;
      log_message(LogLevel::info, "one");
    }
    log_message(LogLevel::info, "two");
    EXPECT_THAT(heard, IsEmpty());
  }
  EXPECT_THAT(heard, ElementsAre("info one", "info two"));
}

TEST_F(LogTest, AFailingHookChangesNothing) {
  set_log_hook([](LogLevel, std::string_view) { throw std::runtime_error("broken"); });
  EXPECT_NO_THROW(log_message(LogLevel::warn, "text"));
}

// The variable is read once, so each case is a process.
void log_all(const char* value) {
  setenv("FLASHCORE_LOG", value, 1);
  set_log_hook({});
  log_message(LogLevel::debug, "d");
  log_message(LogLevel::info, "i");
  log_message(LogLevel::warn, "w");
  std::exit(0);
}

TEST(LogDeathTest, TheVariableChoosesTheLevel) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  using testing::Eq;
  EXPECT_EXIT(log_all(""), testing::ExitedWithCode(0), Eq("flashcore warn: w\n"));
  EXPECT_EXIT(log_all("off"), testing::ExitedWithCode(0), Eq(""));
  EXPECT_EXIT(log_all("warn"), testing::ExitedWithCode(0), Eq("flashcore warn: w\n"));
  EXPECT_EXIT(log_all("info"), testing::ExitedWithCode(0),
              Eq("flashcore info: i\nflashcore warn: w\n"));
  EXPECT_EXIT(log_all("loud"), testing::ExitedWithCode(0),
              Eq("flashcore: FLASHCORE_LOG=loud is not debug, info, warn or off; using warn\n"
                 "flashcore warn: w\n"));
}

}  // namespace
}  // namespace flashcore
