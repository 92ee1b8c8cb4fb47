// Every call that concerns files of compiling a kernel for the CPU, keeping it and loading it
// again: killed and failed one after another. A process gets the right kernel or an error that it
// can catch, and the next one gets the kernel. Apart from the other tests of the emulator, because
// each child has to open the shared cache itself.
#include <cerrno>
#include <filesystem>

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>

#include "dsl/error.h"
#include "runtime/emulator/host_compiler.h"
#include "tests/runtime/emulator/support/kernels.h"
#include "tests/runtime/support/heavy.h"
#include "tests/runtime/support/scoped_environment.h"
#include "tests/runtime/support/system_calls.h"
#include "tests/runtime/support/temporary_directory.h"

namespace flashcore::testing {
namespace {

namespace fs = std::filesystem;
using test::Fault;
using Kind = test::Fault::Kind;

constexpr int wrong_numbers = 1, typed_error = 3;

class HostCodeFaults : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!test::can_trace()) GTEST_SKIP() << "processes cannot be traced here";
    const test::Traced compiled = test::run_with_fault({}, [&] {
      compile_for_host(source, {.compiler = "", .keep_dir = place / "kept"});
      return 0;
    });
    ASSERT_EQ(compiled.status, 0);
    for (const auto& file : fs::directory_iterator(place / "kept")) {
      if (file.path().extension() == ".so") fs::rename(file.path(), place / "library");
      if (file.path().extension() == ".cpp") fs::rename(file.path(), place / "source");
    }
    // A compiler that takes no time: it knows one kernel, and what it makes of half of it.
    test::write_file(place / "compiler",
                     "#!/bin/sh\n[ \"$1\" = --version ] && exit\ncmp -s \"$3\" " +
                         (place / "source") + " || { echo > \"$2\"; exit; }\n" + "cp " +
                         (place / "library") + " \"$2\"\n");
    fs::permissions(place / "compiler", fs::perms(0700));
    fs::create_directory(place / "tmp");
  }

  int run_kernel() const {
    const test::ScopedEnvironment environment(
        test::ScopedEnvironment::Variables{{"FLASHCORE_CACHE_DIR", place / "cache"},
                                           {"FLASHCORE_CXX", place / "compiler"},
                                           {"FLASHCORE_LOG", "off"},
                                           {"TMPDIR", place / "tmp"}});
    try {
      SmallRun run;
      run(source);
      return run.y[0] == 7 && run.y[8] == 8 ? 0 : wrong_numbers;
    } catch (const Error&) {
      return typed_error;
    }
  }

  [[nodiscard]] int kept() const {
    int count = 0;
    if (fs::exists(place / "cache")) {
      for (const auto& file : fs::directory_iterator(place / "cache"))
        count += file.path().extension() == ".host" ? 1 : 0;
    }
    return count;
  }

  /// Tries the fault at every number that the work comes to; how often.
  int try_everywhere(Kind kind, int error, bool warm) {
    for (int number = 0;; ++number) {
      fs::remove_all(place / "cache");
      if (warm) {
        EXPECT_EQ(test::run_with_fault({}, [&] { return run_kernel(); }).status, 0);
        EXPECT_EQ(kept(), 1);
      }
      const test::Traced traced = test::run_with_fault(
          {.kind = kind, .number = number, .error = error}, [&] { return run_kernel(); });
      const ::testing::ScopedTrace where(
          __FILE__, __LINE__, fmt::format("error {} at call {}, {}", error, number, traced.call));
      if (traced.call.empty()) {
        EXPECT_EQ(traced.status, 0);
        return number;
      }
      if (kind == Kind::kill) {
        EXPECT_EQ(traced.status, 128 + SIGKILL);
      } else {
        EXPECT_THAT(traced.status, ::testing::AnyOf(0, typed_error));
      }
      EXPECT_EQ(test::run_with_fault({}, [&] { return run_kernel(); }).status, 0);
      EXPECT_GE(kept(), 1);  // or 2: a compiler that could not be looked at is another one
      if (HasFailure()) return number;
    }
  }

  test::TemporaryDirectory place{test::quick_place()};
  const KernelSource source = small_kernel(
      "float value = 7 + thread;\nfc::store_global<1>(p.y + thread * p.y_stride_0, &value);\n");
};

TEST_F(HostCodeFaults, AProcessMayBeKilledAtAnyCall) {
  for (const bool warm : {false, true}) EXPECT_GT(try_everywhere(Kind::kill, 0, warm), 30);
}

// A limit on the size of files fails like a disk that fills up in the middle of one: half of a
// library must not be given to the loader, which would trust it.
TEST_F(HostCodeFaults, FilesMayEndAnywhere) {
  const auto whole = fs::file_size(place / "library") + fs::file_size(place / "source");
  for (const bool warm : {false, true}) {
    int refused = 0;
    for (rlim_t limit = 0; limit < whole + whole / 40; limit += whole / 40) {
      fs::remove_all(place / "cache");
      if (warm) {
        EXPECT_EQ(test::run_with_fault({}, [&] { return run_kernel(); }).status, 0);
      }
      const int status = test::run_with_fault({}, [&] {
                           signal(SIGXFSZ, SIG_IGN);
                           const rlimit small{.rlim_cur = limit, .rlim_max = limit};
                           setrlimit(RLIMIT_FSIZE, &small);
                           return run_kernel();
                         }).status;
      EXPECT_THAT(status, ::testing::AnyOf(0, typed_error)) << limit;
      refused += status == typed_error ? 1 : 0;
      EXPECT_EQ(test::run_with_fault({}, [&] { return run_kernel(); }).status, 0) << limit;
    }
    EXPECT_THAT(refused, ::testing::AllOf(::testing::Gt(5), ::testing::Lt(40)));
  }
}

TEST_F(HostCodeFaults, ReadsAndWritesMayDoHalf) {
  for (const bool warm : {false, true}) EXPECT_GT(try_everywhere(Kind::halve, 0, warm), 3);
}

TEST_F(HostCodeFaults, AnyCallMayFail) {
  std::vector<int> errors{ENOSPC, EIO};
  if (test::light_or_heavy(0, 1) == 1)
    for (const int error : {ESTALE, EACCES, EROFS, EMFILE, ENOENT}) errors.push_back(error);
  for (const int error : errors) {
    for (const bool warm : {false, true}) EXPECT_GT(try_everywhere(Kind::fail, error, warm), 20);
  }
}

}  // namespace
}  // namespace flashcore::testing
