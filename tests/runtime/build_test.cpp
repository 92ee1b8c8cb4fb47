// From source to code as a user gets it, in processes of their own.
#include <filesystem>

#include <gmock/gmock.h>

#include "tests/runtime/support/expectations.h"
#include "tests/runtime/support/processes.h"
#include "tests/runtime/support/temporary_directory.h"

namespace flashcore {
namespace {

namespace fs = std::filesystem;
using test::Finished;
using test::run_worker;
using test::run_workers;
using testing::AllOf;
using testing::HasSubstr;

class BuildTest : public testing::Test {
 protected:
  void SetUp() override { FLASHCORE_REQUIRE_NVRTC(); }

  // The kernel's file and only it: everything but the record of the compiler and the locks.
  [[nodiscard]] std::vector<std::string> kernels() const {
    std::vector<std::string> found;
    for (const auto& file : fs::directory_iterator(temporary / "cache")) {
      if (file.path().extension() == ".kernel") found.push_back(file.path());
    }
    return found;
  }
  static std::string cubin_of(const Finished& finished) {
    const std::size_t at = finished.output.find("cubin=");
    return at == std::string::npos ? finished.output : finished.output.substr(at);
  }

  test::TemporaryDirectory temporary;
  std::map<std::string, std::string> environment{{"FLASHCORE_CACHE_DIR", temporary / "cache"}};
};

TEST_F(BuildTest, TheSecondProcessNeitherCompilesNorOpensTheCompiler) {
  const Finished first = run_worker({"build"}, environment);
  EXPECT_THAT(first.output, HasSubstr("from_cache=false compiled=true nvrtc_open=true"));
  const Finished second = run_worker({"build"}, environment);
  EXPECT_THAT(second.output, HasSubstr("from_cache=true compiled=false nvrtc_open=false"));
  EXPECT_EQ(cubin_of(second), cubin_of(first));
}

#ifdef FLASHCORE_FAKE_PROFILER
TEST_F(BuildTest, ProfilersAreToldWhatTakesTime) {
  environment["NVTX_INJECTION64_PATH"] = FLASHCORE_FAKE_PROFILER;
  EXPECT_THAT(run_worker({"build"}, environment).output,
              AllOf(HasSubstr("domain flashcore\nbegin look for a kernel\nend\n"),
                    HasSubstr("begin compile a kernel\nend\n")));
  EXPECT_THAT(run_worker({"build"}, environment).output,
              AllOf(HasSubstr("begin look for a kernel\nend\n"),
                    testing::Not(HasSubstr("compile a kernel"))));
}
#endif

TEST_F(BuildTest, SameInputSameFileInTwoProcesses) {
  run_worker({"build"}, environment);
  ASSERT_EQ(kernels().size(), 1U);
  const std::string name = kernels()[0];
  const std::string content = test::read_file(name);
  fs::remove(name);
  run_worker({"build"}, environment);
  EXPECT_EQ(test::read_file(name), content);
}

TEST_F(BuildTest, ManyProcessesCompileOnce) {
  int compiled = 0;
  for (const Finished& worker : run_workers(8, {"build"}, environment)) {
    EXPECT_EQ(worker.status, 0) << worker.output;
    compiled += worker.output.find("compiled=true") != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(compiled, 1);
}

TEST_F(BuildTest, WorksWithoutAPlaceToWrite) {
  const Finished off = run_worker({"build"}, {{"FLASHCORE_CACHE", "off"}});
  EXPECT_THAT(off.output, HasSubstr("from_cache=false compiled=true"));
  const Finished nowhere = run_worker({"build"}, {{"FLASHCORE_CACHE_DIR", "/proc/flashcore"}});
  EXPECT_THAT(nowhere.output, HasSubstr("from_cache=false compiled=true"));
  EXPECT_THAT(nowhere.output,
              HasSubstr("flashcore warn: the cache directory /proc/flashcore is not used"));
  const Finished silent =
      run_worker({"build"}, {{"FLASHCORE_CACHE_DIR", "/proc/flashcore"}, {"FLASHCORE_LOG", "off"}});
  EXPECT_THAT(silent.output, testing::Not(HasSubstr("/proc/flashcore")));
}

TEST_F(BuildTest, ForbiddenCompilesAreErrorsAndHitsAreNot) {
  environment["FLASHCORE_COMPILE"] = "forbid";
  const Finished refused = run_worker({"build"}, environment);
  EXPECT_EQ(refused.status, 3);
  EXPECT_THAT(refused.output,
              AllOf(HasSubstr("scale for sm_80 is not in the cache and compiling is forbidden"),
                    HasSubstr(temporary / "cache")));
  environment.erase("FLASHCORE_COMPILE");
  run_worker({"build"}, environment);
  environment["FLASHCORE_COMPILE"] = "forbid";
  EXPECT_THAT(run_worker({"build"}, environment).output, HasSubstr("from_cache=true"));
}

TEST_F(BuildTest, ACacheTravels) {
  run_worker({"build"}, environment);
  fs::rename(temporary / "cache", temporary / "elsewhere");
  environment["FLASHCORE_CACHE_DIR"] = temporary / "elsewhere";
  EXPECT_THAT(run_worker({"build"}, environment).output, HasSubstr("from_cache=true"));
}

TEST_F(BuildTest, ACachedSpillIsStillASpill) {
  for (const char* rule : {"allow", "forbid"}) {  // the second time nobody has to find out again
    environment["FLASHCORE_COMPILE"] = rule;
    const Finished refused = run_worker({"build-spilling"}, environment);
    EXPECT_EQ(refused.status, 3);
    EXPECT_THAT(refused.output, HasSubstr("spilling for sm_80 spills registers"));
  }
}

TEST_F(BuildTest, PtxOnRequest) {
  EXPECT_THAT(run_worker({"ptx"}, environment).output, HasSubstr(".entry scale("));
}

}  // namespace
}  // namespace flashcore
