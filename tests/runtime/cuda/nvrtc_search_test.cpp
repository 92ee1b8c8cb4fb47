#include "runtime/cuda/nvrtc_search.h"

#include <filesystem>

#include <gmock/gmock.h>

#include "dsl/error.h"
#include "runtime/cuda/nvrtc.h"
#include "tests/runtime/support/expectations.h"
#include "tests/runtime/support/fake_cuda.h"
#include "tests/runtime/support/scoped_environment.h"
#include "tests/runtime/support/temporary_directory.h"

namespace flashcore {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class NvrtcSearchTest : public testing::Test {
 protected:
  // Some library of this machine under that name.
  std::string plant(const std::string& name) {
    fs::path path = temporary / name;
    fs::create_directories(path.parent_path());
    fs::copy_file(test::fake_cuda_file(), path);
    return fs::canonical(path);
  }
  static std::string library(NvrtcSearch search) {
    search.loader = false;
    return find_nvrtc(search).library;
  }

  test::TemporaryDirectory temporary;
};

TEST_F(NvrtcSearchTest, WheelsInSitePackages) {
  const std::string twelve = plant("site/nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
  EXPECT_EQ(library({.hint = temporary / "site"}), twelve);
  const std::string thirteen = plant("site/nvidia/cu13/lib/libnvrtc.so.13");
  const std::string builtins = plant("site/nvidia/cu13/lib/libnvrtc-builtins.so.13.0");
  plant("site/nvidia/cu13/lib/libnvrtc-builtins.alt.so.13.0");
  const NvrtcFiles files = find_nvrtc({.hint = temporary / "site", .loader = false});
  EXPECT_EQ(files.library, thirteen);
  EXPECT_THAT(files.builtins, ElementsAre(builtins));
  for (const char* hint :
       {"site/nvidia", "site/nvidia/cu13/lib", "site/nvidia/cu13/lib/libnvrtc.so.13"}) {
    EXPECT_EQ(library({.hint = temporary / hint}), thirteen) << hint;
  }
}

TEST_F(NvrtcSearchTest, NewestOfADirectoryAndLinksResolved) {
  plant("cuda/lib64/libnvrtc.so.12");
  const std::string newest = plant("cuda/lib64/libnvrtc.so.13.0.88");
  fs::create_symlink("libnvrtc.so.13.0.88", temporary / "cuda/lib64/libnvrtc.so.13");
  fs::create_symlink("libnvrtc.so.13", temporary / "cuda/lib64/libnvrtc.so");
  EXPECT_EQ(library({.toolkits = {temporary / "cuda"}}), newest);
}

TEST_F(NvrtcSearchTest, TheOrder) {
  const std::string exact = plant("exact/libnvrtc.so.13");
  const std::string wheel = plant("site/nvidia/cu13/lib/libnvrtc.so.13");
  const std::string toolkit = plant("cuda/lib64/libnvrtc.so.13");
  const std::string usual = plant("usual/lib64/libnvrtc.so.13");
  NvrtcSearch search{.exact = exact,
                     .hint = temporary / "site",
                     .toolkits = {temporary / "none", temporary / "cuda"},
                     .fallbacks = {temporary / "usual"}};
  EXPECT_EQ(library(search), exact);
  search.exact.clear();
  EXPECT_EQ(library(search), wheel);
  search.hint.clear();
  EXPECT_EQ(library(search), toolkit);
  search.toolkits.clear();
  EXPECT_EQ(library(search), usual);
}

TEST_F(NvrtcSearchTest, AnExactFileHasNoSubstitute) {
  plant("site/nvidia/cu13/lib/libnvrtc.so.13");
  const std::string message = message_of<CompileError>(
      [&] { find_nvrtc({.exact = "/nowhere/libnvrtc.so.13", .hint = temporary / "site"}); });
  EXPECT_THAT(message, AllOf(HasSubstr("/nowhere/libnvrtc.so.13 (FLASHCORE_NVRTC): not there"),
                             testing::Not(HasSubstr("site"))));
}

TEST_F(NvrtcSearchTest, MissingNamesEveryPlace) {
  test::write_file(temporary / "libnvrtc.so.13", "<html>not found</html>");
  fs::create_directories(temporary / "cuda/lib64");
  const std::string message = message_of<CompileError>([&] {
    find_nvrtc({.exact = "",
                .hint = temporary / "libnvrtc.so.13",
                .toolkits = {temporary / "cuda"},
                .loader = false,
                .fallbacks = {temporary / "gone"}});
  });
  EXPECT_THAT(message, AllOf(HasSubstr("the CUDA run-time compiler (libnvrtc) was not found"),
                             HasSubstr("(the host program): not a library for this machine"),
                             HasSubstr(temporary / "cuda/lib64/libnvrtc.so.*"),
                             HasSubstr((temporary / "gone") + " (the usual place): no toolkit"),
                             HasSubstr("pip install 'flashcore[nvrtc]'"), HasSubstr("emulator")));
}

TEST_F(NvrtcSearchTest, TheEnvironment) {
  const test::ScopedEnvironment environment({{"FLASHCORE_NVRTC", "/a/libnvrtc.so.13"},
                                             {"CUDA_HOME", "/b"},
                                             {"CUDA_PATH", "/c"},
                                             {"CONDA_PREFIX", "/e"}});
  set_nvrtc_hint("/d");
  const NvrtcSearch search = NvrtcSearch::from_environment();
  set_nvrtc_hint("");
  EXPECT_EQ(search.exact, "/a/libnvrtc.so.13");
  EXPECT_EQ(search.hint, "/d");
  EXPECT_THAT(search.toolkits, ElementsAre("/b", "/c", "/e"));
  EXPECT_THAT(search.fallbacks, ElementsAre("/usr/local/cuda"));
  EXPECT_TRUE(search.loader);
}

TEST_F(NvrtcSearchTest, AnotherLibraryIsRefusedInWords) {
  const std::string planted = plant("libnvrtc.so.13");
  EXPECT_THAT(message_of<CompileError>([&] { Nvrtc(find_nvrtc({.exact = planted})); }),
              AllOf(HasSubstr(planted + " cannot be used"), HasSubstr("no function nvrtcVersion")));
}

// Without its own built-in functions NVRTC would take another toolkit's by their bare name.
TEST_F(NvrtcSearchTest, BuiltinsComeFromBesideTheLibrary) {
  FLASHCORE_REQUIRE_NVRTC();
  const NvrtcFiles& files = test::installed_nvrtc()->files();
  ASSERT_FALSE(files.builtins.empty());
  std::string maps = test::read_file("/proc/self/maps");
  EXPECT_THAT(maps, HasSubstr(files.library));
  const std::string wanted = "libnvrtc-builtins.so." + test::installed_nvrtc()->version().text();
  bool mapped = false;
  for (const std::string& file : files.builtins) {
    mapped |= file.find(wanted) != std::string::npos && maps.find(file) != std::string::npos;
  }
  EXPECT_TRUE(mapped) << wanted;
}

}  // namespace
}  // namespace flashcore
