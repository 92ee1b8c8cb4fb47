// Directories that are read and never written to.
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>

#include "dsl/error.h"
#include "tests/runtime/cache/cache_fixture.h"

namespace flashcore {
namespace {

namespace fs = std::filesystem;
using test::key_of;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ReadOnlyFoldersTest : public test::KernelCacheTest {
 protected:
  // Kernels "a" and "b", and "b" alone.
  ReadOnlyFoldersTest() {
    for (const auto& [folder, bodies] :
         {std::pair{one, std::vector{"a", "b"}}, std::pair{two, std::vector{"b"}}}) {
      KernelCache cache({.directory = folder});
      for (const char* body : bodies) get(cache, body);
    }
    builds = 0;
  }

  static std::vector<std::string> files_in(const std::string& folder) {
    std::vector<std::string> names;
    for (const auto& file : fs::directory_iterator(folder)) names.push_back(file.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  std::string one = temporary / "one", two = temporary / "two";
};

TEST_F(ReadOnlyFoldersTest, ServeWhatTheDirectoryLacks) {
  const auto before = files_in(one);
  {
    KernelCache cache({.directory = directory, .read_only = {two, one}});
    EXPECT_TRUE(get(cache, "a").from_cache);
    EXPECT_TRUE(get(cache, "b").from_cache);
    EXPECT_FALSE(get(cache, "c").from_cache);
    EXPECT_EQ(cache.statistics().folder, 2U);
    EXPECT_EQ(cache.statistics().compiled, 1U);
  }
  EXPECT_EQ(builds, 1);
  EXPECT_EQ(files_in(one), before);
  EXPECT_FALSE(fs::exists(file_of("a")));  // what a folder keeps need not be kept twice
  EXPECT_TRUE(fs::exists(file_of("c")));
  KernelCache without({.directory = directory});
  EXPECT_TRUE(get(without, "c").from_cache);
  EXPECT_THAT(warnings, IsEmpty());
}

TEST_F(ReadOnlyFoldersTest, ServeWithoutADirectory) {
  KernelCache cache({.directory = "", .read_only = {one}});
  EXPECT_TRUE(get(cache, "b").from_cache);
  EXPECT_EQ(builds, 0);
}

TEST_F(ReadOnlyFoldersTest, AreLeftAsTheyAre) {
  fs::permissions(one, fs::perms::owner_read | fs::perms::owner_exec);
  const std::string file = one + "/" + key_of("a").name + ".kernel";
  const auto time = fs::last_write_time(file);
  std::ofstream(file, std::ios::app) << "more";
  const auto damaged = files_in(one);
  fs::last_write_time(file, time);
  KernelCache cache({.directory = directory, .read_only = {one}});
  EXPECT_FALSE(get(cache, "a").from_cache);  // and it is not set aside: that would be a write
  EXPECT_TRUE(get(cache, "b").from_cache);
  EXPECT_EQ(files_in(one), damaged);
  EXPECT_EQ(fs::last_write_time(file), time);
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("is damaged or foreign and not used")));
  fs::permissions(one, fs::perms::owner_all);
}

TEST_F(ReadOnlyFoldersTest, HaveToPassThePolicyOfTheDirectory) {
  fs::permissions(one, fs::perms::others_write, fs::perm_options::add);
  fs::create_directory_symlink(two, temporary / "link");
  KernelCache cache({.directory = directory,
                     .read_only = {one, temporary / "link", temporary / "absent", "relative"}});
  EXPECT_FALSE(get(cache, "b").from_cache);
  EXPECT_FALSE(fs::exists(temporary / "absent"));
  EXPECT_THAT(warnings,
              ElementsAre(HasSubstr("others may write to it"), HasSubstr("it is a symbolic link"),
                          HasSubstr("No such file"), HasSubstr("not an absolute path")));
  EXPECT_THAT(cache.folders().reasons_of_miss(key_of("b")), testing::SizeIs(4));
}

TEST_F(ReadOnlyFoldersTest, AnyCompilersKernelServesWhereNothingCanBeCompiled) {
  const auto made_by = [](const char* digest) {
    return make_key(test::scale_kernel(), "sm_80", {}, {.version = {13, 0}, .digest = digest});
  };
  {
    KernelCache filling({.directory = one});
    (void)filling.get(made_by("one"), [] { return Cubin{.bytes = "of one", .resources = {}}; });
  }
  const auto refuse = []() -> Cubin { throw CompileError({.what = "no", .why = "compiler"}); };
  KernelCache cache({.directory = directory, .read_only = {two, one}});
  EXPECT_THROW((void)cache.get(made_by("two"), refuse), CompileError);
  EXPECT_EQ(cache.get(made_by("two"), refuse, Compiler::any).cubin->bytes, "of one");
}

}  // namespace
}  // namespace flashcore
