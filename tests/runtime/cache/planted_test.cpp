// What somebody may have put in the place of every file that the cache opens: links, pipes,
// folders, files of others or that others can write to. None is loaded, followed, emptied or waited
// for.
#include <filesystem>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/cache/cache.h"
#include "runtime/cache/entry.h"
#include "tests/runtime/cache/cache_fixture.h"

namespace flashcore {
namespace {

namespace fs = std::filesystem;
using test::key_of;

/// What stands in the place of a file; the text of `precious`, where it takes one, is a kernel that
/// would be found out to be a wrong one.
struct Plant {
  const char* name;
  std::function<void(const std::string& place, const std::string& precious)> put;
};

const std::vector<Plant> plants{
    {"a link",
     [](const auto& place, const auto& precious) { fs::create_symlink(precious, place); }},
    {"a link to nothing",
     [](const auto& place, const auto& precious) { fs::create_symlink(precious + ".not", place); }},
    {"a link to itself", [](const auto& place, const auto&) { fs::create_symlink(place, place); }},
    {"a pipe", [](const auto& place, const auto&) { mkfifo(place.c_str(), 0600); }},
    {"a folder", [](const auto& place, const auto&) { fs::create_directory(place); }},
    {"a file that others can write to",
     [](const auto& place, const auto& precious) {
       fs::copy_file(precious, place);
       fs::permissions(place, fs::perms(0622));
     }},
    {"a file of another user",
     [](const auto& place, const auto& precious) {
       fs::copy_file(precious, place);
       if (geteuid() == 0) {
         EXPECT_EQ(chown(place.c_str(), 12345, 12345), 0);
       } else {  // only root can give a file away
         fs::permissions(place, fs::perms(0662));
       }
     }},
};

class Planted : public test::KernelCacheTest {
 protected:
  /// A forged kernel, whole and under the right key.
  std::string precious() {
    std::string file = temporary / "precious";
    test::write_file(file, forged);
    return file;
  }
  static bool is_right(const KernelCache::Outcome& outcome) {
    return outcome.cubin->bytes[0] == 'a';
  }
  const std::string forged = encode_entry(key_of("a"), {.bytes = "forged", .resources = {}});
};

TEST_F(Planted, ForAnEntry) {
  for (const Plant& plant : plants) {
    fs::remove_all(directory);
    (void)KernelCache({.directory = directory});
    const std::string goal = precious();
    plant.put(file_of("a"), goal);
    for (int again = 0; again < 2; ++again) {
      KernelCache cache({.directory = directory});
      EXPECT_TRUE(is_right(get(cache))) << plant.name;
      KernelCache any({.directory = directory});
      EXPECT_TRUE(is_right(any.get(
          key_of("a"), [] { return Cubin{.bytes = "a", .resources = {}}; }, Compiler::any)))
          << plant.name;
    }
    EXPECT_EQ(test::read_file(goal), forged) << plant.name;
    EXPECT_FALSE(fs::exists(goal + ".not")) << plant.name;
    // A folder stays, and the kernel is compiled each time; anything else is replaced.
    if (!fs::is_directory(file_of("a"))) {
      EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(file_of("a")))) << plant.name;
      EXPECT_TRUE(decode_entry(key_of("a"), test::read_file(file_of("a")))) << plant.name;
      struct stat status {};
      ASSERT_EQ(stat(file_of("a").c_str(), &status), 0);
      EXPECT_EQ(status.st_mode & 07777, 0600U) << plant.name;
      EXPECT_EQ(status.st_uid, geteuid()) << plant.name;
    }
  }
}

TEST_F(Planted, ForALock) {
  const std::string lock = directory + "/lock." + key_of("a").name.substr(0, 2);
  for (const Plant& plant : plants) {
    fs::remove_all(directory);
    (void)KernelCache({.directory = directory});
    const std::string goal = precious();
    plant.put(lock, goal);
    KernelCache cache({.directory = directory});
    const auto start = std::chrono::steady_clock::now();
    EXPECT_TRUE(is_right(get(cache))) << plant.name;
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5)) << plant.name;
    EXPECT_EQ(test::read_file(goal), forged) << plant.name;
    EXPECT_FALSE(fs::exists(goal + ".not")) << plant.name;
    EXPECT_TRUE(fs::exists(file_of("a"))) << plant.name;
  }
}

// Held for ever through a link to a file of somebody's own, it would delay every compile by a
// minute.
TEST_F(Planted, ForALockThatIsHeldElsewhere) {
  const std::string goal = precious();
  const Descriptor held(open(goal.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(flock(held.number(), LOCK_EX), 0);
  (void)KernelCache({.directory = directory});
  fs::create_symlink(goal, directory + "/lock." + key_of("a").name.substr(0, 2));
  KernelCache cache({.directory = directory});
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(is_right(get(cache)));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST_F(Planted, ForWhatIsSetAside) {
  for (const Plant& plant : plants) {
    fs::remove_all(directory);
    (void)KernelCache({.directory = directory});
    const std::string goal = precious();
    plant.put(file_of("a") + ".damaged", goal);
    test::write_file(file_of("a"), "damaged");
    KernelCache cache({.directory = directory});
    EXPECT_TRUE(is_right(get(cache))) << plant.name;
    EXPECT_EQ(test::read_file(goal), forged) << plant.name;
    EXPECT_TRUE(decode_entry(key_of("a"), test::read_file(file_of("a")))) << plant.name;
  }
}

TEST_F(Planted, ForTheFolder) {
  for (const Plant& plant : plants) {
    if (std::string_view(plant.name) == "a folder") continue;  // is one
    fs::remove_all(directory);
    const std::string goal = precious();
    plant.put(directory, goal);
    KernelCache cache({.directory = directory});
    EXPECT_EQ(cache.directory(), nullptr) << plant.name;
    EXPECT_TRUE(is_right(get(cache))) << plant.name;
    EXPECT_EQ(test::read_file(goal), forged) << plant.name;
  }
}

// Checked at every read, not only when it is opened.
TEST_F(Planted, InAFolderThatOthersCameToWriteTo) {
  KernelCache cache({.directory = directory});
  test::write_file(file_of("a"), forged);
  fs::permissions(directory, fs::perms(0777));
  EXPECT_TRUE(is_right(get(cache)));
  fs::permissions(directory, fs::perms(0700));
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  KernelCache other({.directory = directory});
  test::write_file(file_of("a"), forged);
  ASSERT_EQ(chown(directory.c_str(), 12345, 12345), 0);
  EXPECT_TRUE(is_right(get(other)));
}

}  // namespace
}  // namespace flashcore
