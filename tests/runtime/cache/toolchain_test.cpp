#include "runtime/cache/toolchain.h"

#include <filesystem>

#include <gmock/gmock.h>

#include "tests/runtime/support/expectations.h"
#include "tests/runtime/support/temporary_directory.h"

namespace flashcore {
namespace {

namespace fs = std::filesystem;

// A copy of the installed compiler that a test may age, by links so that nothing large is written.
class ToolchainTest : public testing::Test {
 protected:
  void SetUp() override {
    FLASHCORE_REQUIRE_NVRTC();
    std::string why;
    directory = CacheDirectory::open(temporary / "cache", why);
    ASSERT_TRUE(directory) << why;
    files = test::installed_nvrtc()->files();
  }
  [[nodiscard]] std::string record() const {
    for (const auto& file : directory->files()) {
      if (file.name.ends_with(".toolchain")) return temporary / ("cache/" + file.name);
    }
    return "";
  }

  test::TemporaryDirectory temporary;
  std::optional<CacheDirectory> directory;
  NvrtcFiles files;
};

TEST_F(ToolchainTest, IsKnownWithoutOpeningTheCompiler) {
  const InstalledNvrtc first(files, &*directory);
  EXPECT_TRUE(first.is_open());
  const InstalledNvrtc second(files, &*directory);
  EXPECT_FALSE(second.is_open());
  EXPECT_EQ(second.toolchain(), first.toolchain());
  EXPECT_EQ(second.toolchain().version, test::installed_nvrtc()->version());
  EXPECT_EQ(second.toolchain().digest.size(), 32U);
  EXPECT_EQ(second.nvrtc().version(), second.toolchain().version);
  EXPECT_TRUE(second.is_open());
}

TEST_F(ToolchainTest, ADamagedRecordIsMadeAgain) {
  const InstalledNvrtc first(files, &*directory);
  ASSERT_NE(record(), "");
  std::string content = test::read_file(record());
  content[content.size() / 2] ^= 1;
  test::write_file(record(), content);
  const InstalledNvrtc second(files, &*directory);
  EXPECT_TRUE(second.is_open());
  EXPECT_EQ(second.toolchain(), first.toolchain());
  EXPECT_FALSE(InstalledNvrtc(files, &*directory).is_open());
}

TEST_F(ToolchainTest, OtherBuiltinsAreAnotherToolchain) {
  const InstalledNvrtc first(files, nullptr);
  test::write_file(temporary / "libnvrtc-builtins.so.0.0", "patched");
  NvrtcFiles other = files;
  other.builtins.push_back(temporary / "libnvrtc-builtins.so.0.0");
  EXPECT_NE(InstalledNvrtc(other, nullptr).toolchain().digest, first.toolchain().digest);
}

TEST_F(ToolchainTest, AReplacedFileIsNoticed) {
  NvrtcFiles other = files;
  const std::string extra = temporary / "libnvrtc-builtins.so.0.0";
  test::write_file(extra, "one");
  other.builtins.push_back(extra);
  const InstalledNvrtc first(other, &*directory);
  test::write_file(extra, "two");
  fs::last_write_time(extra, fs::file_time_type::clock::now() + std::chrono::seconds(5));
  EXPECT_NE(InstalledNvrtc(other, &*directory).toolchain().digest, first.toolchain().digest);
}

TEST_F(ToolchainTest, AFileOfEqualSizeAndTimeIsNoticed) {
  NvrtcFiles other = files;
  const std::string extra = temporary / "libnvrtc-builtins.so.0.0";
  test::write_file(extra, "one");
  const auto written = fs::last_write_time(extra);
  other.builtins.push_back(extra);
  const InstalledNvrtc first(other, &*directory);
  test::write_file(extra, "two");
  fs::last_write_time(extra, written);
  EXPECT_NE(InstalledNvrtc(other, &*directory).toolchain().digest, first.toolchain().digest);
}

// A deployment that ships its kernels needs no compiler, only to know which one made them.
TEST_F(ToolchainTest, AFilledCacheServesWithoutACompiler) {
  const NvrtcSearch nowhere{
      .exact = "", .hint = "", .toolkits = {}, .loader = false, .fallbacks = {}};
  const auto missing = [&](const NvrtcSearch& search) {
    return test::message_of<CompileError>([&] { InstalledNvrtc::find(search, &*directory); });
  };
  EXPECT_THAT(missing(nowhere), testing::HasSubstr("was not found"));  // the cache is still empty

  const InstalledNvrtc filled(files, &*directory);
  const auto absent = InstalledNvrtc::find(nowhere, &*directory);
  EXPECT_FALSE(absent->is_present());
  EXPECT_EQ(absent->toolchain(), filled.toolchain());
  EXPECT_THAT(test::message_of<CompileError>([&] { (void)absent->nvrtc(); }),
              testing::HasSubstr("pip install 'flashcore[nvrtc]'"));

  NvrtcSearch named = nowhere;
  named.exact = "/nowhere/libnvrtc.so.13";  // a wish is not replaced by what happens to be there
  EXPECT_THAT(missing(named), testing::HasSubstr("/nowhere/libnvrtc.so.13"));
}

}  // namespace
}  // namespace flashcore
