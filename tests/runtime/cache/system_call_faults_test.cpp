// Every system call of a lookup, a publish and an eviction, killed and failed one after another:
// whoever asks gets the right kernel, now and after it, and nothing is left behind.
#include <array>
#include <cerrno>
#include <filesystem>

#include <gmock/gmock.h>
#include <signal.h>

#include "runtime/cache/cache.h"
#include "runtime/cache/entry.h"
#include "tests/runtime/cache/cache_fixture.h"
#include "tests/runtime/support/heavy.h"
#include "tests/runtime/support/system_calls.h"

namespace flashcore {
namespace {

namespace fs = std::filesystem;
using std::chrono::hours;
using test::Fault;
using test::key_of;
using Kind = test::Fault::Kind;

constexpr std::size_t code_bytes = 1000, damaged_bytes = 500;
constexpr int wrong_kernel = 1;

/// What a process does with the cache, and what it finds there.
struct Scenario {
  const char* name;
  std::uint64_t max_bytes;
  std::function<void(const std::string& directory)> prepare;
  Compiler compiler = Compiler::this_one;
};

void age(const std::string& file, std::chrono::hours by) {
  fs::last_write_time(file, fs::file_time_type::clock::now() - by);
}

class SystemCallFaults : public test::KernelCacheTest {
 protected:
  void SetUp() override {
    if (!test::can_trace()) GTEST_SKIP() << "processes cannot be traced here";
    directory = quick_ / "cache";
  }

  /// Status 0 if the cache hands out the right kernel.
  int ask(const Scenario& scenario, const std::string& body = "a") {
    KernelCache cache({.directory = directory, .max_bytes = scenario.max_bytes});
    const auto outcome = cache.get(
        key_of(body),
        [&] {
          ++builds;
          return Cubin{.bytes = body + std::string(code_bytes, 'c'), .resources = {}};
        },
        scenario.compiler);
    return outcome.cubin->bytes == body + std::string(code_bytes, 'c') ? 0 : wrong_kernel;
  }

  std::vector<Scenario> scenarios() {
    const auto keep = [this](const std::string& body) {
      KernelCache cache({.directory = directory});
      get(cache, body, code_bytes);
      age(file_of(body), hours(1));  // so that a use of it is noted
    };
    const auto nothing = [](const std::string&) {};
    return {
        {"publish into a new directory", 1 << 20, nothing},
        {"publish beside others", 1 << 20, [=](const std::string&) { keep("b"); }},
        {"publish and evict", 10'000,
         [=](const std::string& there) {
           for (const char* body : {"b", "d", "e", "f"}) keep(body);
           test::write_file(there + "/unfinished.1.1.0", "half");
           age(there + "/unfinished.1.1.0", hours(2));
         }},
        {"load", 1 << 20, [=](const std::string&) { keep("a"); }},
        {"load of any compiler's", 1 << 20, [=](const std::string&) { keep("a"); }, Compiler::any},
        {"set aside what is damaged", 1 << 20,
         [=, this](const std::string&) {
           keep("a");
           fs::resize_file(file_of("a"), damaged_bytes);
         }},
    };
  }

  /// Everything in the directory is whole, or as it was; the next process gets the kernel and waits
  /// for nobody; the one after that finds it, and in time nothing unfinished is left.
  void check_what_is_left(const Scenario& scenario) {
    if (fs::exists(directory)) {
      for (const char* body : {"a", "b", "d", "e", "f"}) {
        const std::string file = test::read_file(file_of(body));
        if (fs::exists(file_of(body)) && file.size() != damaged_bytes) {
          EXPECT_TRUE(decode_entry(key_of(body), file)) << body;
        }
      }
    }
    const auto start = std::chrono::steady_clock::now();
    ASSERT_EQ(ask(scenario), 0);
    builds = 0;
    ASSERT_EQ(ask(scenario), 0);
    EXPECT_EQ(builds, 0);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
    const auto unfinished = [&] {
      std::vector<std::string> found;
      for (const auto& file : fs::directory_iterator(directory)) {
        if (file.path().filename().string().starts_with("unfinished."))
          found.push_back(file.path());
      }
      return found;
    };
    for (const std::string& file : unfinished()) age(file, hours(2));
    ASSERT_EQ(ask(scenario, "z"), 0);
    EXPECT_THAT(unfinished(), testing::IsEmpty());
  }

  /// Tries the fault at every number that the work comes to; how often.
  int try_everywhere(const Scenario& scenario, Kind kind, int expected_status, int error = 0) {
    for (int number = 0;; ++number) {
      fs::remove_all(directory);
      scenario.prepare(directory);
      const test::Traced traced = test::run_with_fault(
          {.kind = kind, .number = number, .error = error}, [&] { return ask(scenario); });
      if (traced.call.empty()) {
        EXPECT_EQ(traced.status, 0) << scenario.name;
        return number;
      }
      const testing::ScopedTrace where(
          __FILE__, __LINE__,
          fmt::format("{}: error {} at call {}, {}", scenario.name, error, number, traced.call));
      EXPECT_EQ(traced.status, expected_status);
      check_what_is_left(scenario);
      if (HasFailure()) return number;
    }
  }

 private:
  test::TemporaryDirectory quick_{test::quick_place()};
};

TEST_F(SystemCallFaults, AProcessMayBeKilledAtAnyCall) {
  for (const Scenario& scenario : scenarios())
    EXPECT_GT(try_everywhere(scenario, Kind::kill, 128 + SIGKILL), 8) << scenario.name;
}

TEST_F(SystemCallFaults, AProcessMayBeKilledInTheMiddleOfAWrite) {
  for (const Scenario& scenario : scenarios()) {
    const bool writes = !std::string_view(scenario.name).starts_with("load");
    EXPECT_EQ(try_everywhere(scenario, Kind::kill_in_write, 128 + SIGKILL), writes ? 1 : 0)
        << scenario.name;
  }
}

TEST_F(SystemCallFaults, ReadsAndWritesMayDoHalf) {
  for (const Scenario& scenario : scenarios())
    EXPECT_GT(try_everywhere(scenario, Kind::halve, 0), 0) << scenario.name;
}

// A full disk, one that breaks, a server that lost the file, a policy, a read-only file system; and
// in heavy runs what else the manual pages tell of.
TEST_F(SystemCallFaults, AnyCallMayFail) {
  std::vector<int> errors{ENOSPC, EIO, ESTALE, EACCES, EROFS};
  if (test::light_or_heavy(0, 1) == 1) {
    for (const int error : {EDQUOT, EMFILE, ENOMEM, ENOENT, EEXIST, ELOOP, EPERM, ENOLCK})
      errors.push_back(error);
  }
  int tried = 0;
  for (const Scenario& scenario : scenarios()) {
    for (const int error : errors) {
      tried += try_everywhere(scenario, Kind::fail, 0, error);
      tried += try_everywhere(scenario, Kind::fail_from_here, 0, error);
    }
    tried += try_everywhere(scenario, Kind::fail, 0, EINTR);  // not for ever: it is tried again
  }
  fmt::print("{} failed calls\n", tried);
  EXPECT_GT(tried, 1000);
}

}  // namespace
}  // namespace flashcore
