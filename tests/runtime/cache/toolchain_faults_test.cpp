// Every call of finding out which compiler this is, killed and failed one after another: it is
// known by its right name, now and afterwards, or by none. Under a wrong one, kernels of another
// compiler would be taken for its own.
#include <cerrno>
#include <filesystem>

#include <gmock/gmock.h>
#include <signal.h>

#include "runtime/cache/toolchain.h"
#include "runtime/log.h"
#include "tests/runtime/support/system_calls.h"
#include "tests/runtime/support/temporary_directory.h"

namespace flashcore {
namespace {

namespace fs = std::filesystem;
using Kind = test::Fault::Kind;

constexpr int wrong_identity = 1, typed_error = 3;

class ToolchainFaults : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::can_trace()) GTEST_SKIP() << "processes cannot be traced here";
    set_log_hook([](LogLevel, std::string_view) {});
    fs::copy_file(FLASHCORE_FAKE_NVRTC, files.library);
    test::write_file(files.builtins[0], std::string(20'000, 'b'));
    right = InstalledNvrtc(files, nullptr).toolchain();
    ASSERT_EQ(right.version.major, 99);
  }
  ~ToolchainFaults() override { set_log_hook({}); }

  /// Who it is; `by_name` if that is known without asking it.
  int identify(bool by_name = false) const {
    std::string why;
    const auto directory = CacheDirectory::open(place / "cache", why);
    try {
      const InstalledNvrtc found(files, directory ? &*directory : nullptr);
      if (by_name && found.is_open()) return wrong_identity;
      return found.toolchain() == right ? 0 : wrong_identity;
    } catch (const CompileError&) {
      return typed_error;
    }
  }

  /// Tries the fault at every number that the work comes to; how often.
  int try_everywhere(Kind kind, int error, bool recorded) {
    for (int number = 0;; ++number) {
      fs::remove_all(place / "cache");
      if (recorded && identify() != 0) ADD_FAILURE();
      const test::Traced traced = test::run_with_fault(
          {.kind = kind, .number = number, .error = error}, [&] { return identify(); });
      const testing::ScopedTrace where(
          __FILE__, __LINE__, fmt::format("error {} at call {}, {}", error, number, traced.call));
      if (traced.call.empty()) {
        EXPECT_EQ(traced.status, 0);
        return number;
      }
      if (kind == Kind::kill) {
        EXPECT_EQ(traced.status, 128 + SIGKILL);
      } else {
        EXPECT_THAT(traced.status, testing::AnyOf(0, typed_error));
      }
      EXPECT_EQ(identify(), 0);
      EXPECT_EQ(identify(true), 0);
      if (HasFailure()) return number;
    }
  }

  test::TemporaryDirectory place{test::quick_place()};
  const NvrtcFiles files{.library = place / "libnvrtc.so.99",
                         .builtins = {place / "libnvrtc-builtins.so.0.0"}};
  Toolchain right;
};

TEST_F(ToolchainFaults, AProcessMayBeKilledAtAnyCall) {
  for (const bool recorded : {false, true}) EXPECT_GT(try_everywhere(Kind::kill, 0, recorded), 20);
}

TEST_F(ToolchainFaults, ReadsAndWritesMayDoHalf) {
  for (const bool recorded : {false, true}) EXPECT_GT(try_everywhere(Kind::halve, 0, recorded), 3);
}

TEST_F(ToolchainFaults, AnyCallMayFail) {
  for (const int error : {ENOSPC, EIO, ESTALE, EACCES, EROFS}) {
    for (const bool recorded : {false, true})
      EXPECT_GT(try_everywhere(Kind::fail, error, recorded), 15);
  }
}

}  // namespace
}  // namespace flashcore
