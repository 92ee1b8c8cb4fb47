#include "runtime/cache/directory.h"

#include <filesystem>
#include <thread>

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/runtime/support/temporary_directory.h"

namespace flashcore {
namespace {

namespace fs = std::filesystem;
using test::TemporaryDirectory;

std::optional<CacheDirectory> opened(const std::string& path) {
  std::string why;
  return CacheDirectory::open(path, why);
}

std::string refusal(const std::string& path) {
  std::string why;
  EXPECT_FALSE(CacheDirectory::open(path, why));
  return why;
}

int mode_of(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 ? static_cast<int>(status.st_mode & 07777) : -1;
}

TEST(CacheDirectory, IsMadePrivate) {
  const TemporaryDirectory temporary;
  const std::string path = temporary / "deep/er/flashcore/";
  ASSERT_TRUE(opened(path));
  EXPECT_EQ(mode_of(path), 0700);
  EXPECT_TRUE(opened(path));  // and taken when it is there
}

TEST(CacheDirectory, WritesPrivateFilesAndLeavesNothingBehind) {
  const TemporaryDirectory temporary;
  const auto directory = opened(temporary / "cache");
  ASSERT_EQ(directory->write("a.kernel", "first"), "");
  ASSERT_EQ(directory->write("a.kernel", "second"), "");
  EXPECT_EQ(directory->read("a.kernel"), "second");
  EXPECT_EQ(mode_of(temporary / "cache/a.kernel"), 0600);
  ASSERT_EQ(directory->files().size(), 1U);
  EXPECT_EQ(directory->files()[0].bytes, 6U);
  EXPECT_FALSE(directory->read("b.kernel"));
}

TEST(CacheDirectory, RefusesALink) {
  const TemporaryDirectory temporary;
  fs::create_directory(temporary / "real");
  fs::permissions(temporary / "real", fs::perms(0700));
  fs::create_symlink(temporary / "real", temporary / "link");
  EXPECT_EQ(refusal(temporary / "link"), "it is a symbolic link");
  EXPECT_EQ(refusal(temporary / "link/"), "it is a symbolic link");
  fs::create_symlink(temporary / "nowhere", temporary / "dangling");
  EXPECT_EQ(refusal(temporary / "dangling"), "it is a symbolic link");
}

TEST(CacheDirectory, RefusesWhatOthersCanWriteTo) {
  const TemporaryDirectory temporary;
  fs::create_directory(temporary / "shared");
  for (const int mode : {0770, 0707, 01777, 0720}) {
    fs::permissions(temporary / "shared", fs::perms(mode));
    EXPECT_EQ(refusal(temporary / "shared"), "others may write to it (mode " +
                                                 std::string(mode > 0777 ? "" : "0") +
                                                 (mode == 0770   ? "770)"
                                                  : mode == 0707 ? "707)"
                                                  : mode == 0720 ? "720)"
                                                                 : "1777)"));
  }
  fs::permissions(temporary / "shared", fs::perms(0755));
  EXPECT_TRUE(opened(temporary / "shared"));
}

TEST(CacheDirectory, RefusesAnotherOwner) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a directory away";
  const TemporaryDirectory temporary;
  fs::create_directory(temporary / "theirs");
  fs::permissions(temporary / "theirs", fs::perms(0700));
  ASSERT_EQ(chown((temporary / "theirs").c_str(), 12345, 12345), 0);
  EXPECT_EQ(refusal(temporary / "theirs"), "it belongs to user 12345, not to 0");
}

TEST(CacheDirectory, RefusesFilesAndImpossiblePlaces) {
  const TemporaryDirectory temporary;
  test::write_file(temporary / "file", "");
  EXPECT_EQ(refusal(temporary / "file"), "Not a directory");
  EXPECT_EQ(refusal(temporary / "file/flashcore"), "it cannot be made: Not a directory");
  EXPECT_EQ(refusal("/proc/flashcore"), "it cannot be made: No such file or directory");
  EXPECT_EQ(refusal("/proc/deep/er/flashcore"), "it cannot be made: No such file or directory");
  EXPECT_EQ(refusal("relative/flashcore"), "it is not an absolute path");
}

TEST(CacheDirectory, ReadsOnlyTrustedFiles) {
  const TemporaryDirectory temporary;
  const auto directory = opened(temporary / "cache");
  test::write_file(temporary / "elsewhere", "planted");
  fs::create_symlink(temporary / "elsewhere", temporary / "cache/link");
  EXPECT_FALSE(directory->read("link"));

  test::write_file(temporary / "cache/open", "planted");
  fs::permissions(temporary / "cache/open", fs::perms(0666));
  EXPECT_FALSE(directory->read("open"));

  fs::create_directory(temporary / "cache/folder");
  EXPECT_FALSE(directory->read("folder"));

  ASSERT_EQ(mkfifo((temporary / "cache/pipe").c_str(), 0600), 0);
  EXPECT_FALSE(directory->read("pipe"));  // and does not wait for a writer
}

TEST(CacheDirectory, MayReadWhatTheUserAloneHasWritten) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make files of root's and read them as another";
  using Owner = CacheDirectory::Owner;
  const TemporaryDirectory temporary;
  const auto directory = opened(temporary / "cache");
  ASSERT_EQ(directory->write("mine", "a"), "");
  ASSERT_EQ(directory->write("roots", "b"), "");
  fs::permissions(temporary / "cache/mine", fs::perms(0644));
  fs::permissions(temporary / "cache/roots", fs::perms(0644));
  fs::permissions(temporary / "cache", fs::perms(0755));
  fs::permissions(temporary.path(), fs::perms(0755));
  EXPECT_EQ(directory->read("mine", Owner::user), "a");

  constexpr uid_t user = 12345;
  const auto read_as_user = [&](const char* name, Owner owner) {
    EXPECT_EQ(seteuid(user), 0);
    const auto content = directory->read(name, owner);
    EXPECT_EQ(seteuid(0), 0);
    return content;
  };
  ASSERT_EQ(chown((temporary / "cache/mine").c_str(), user, user), 0);
  EXPECT_EQ(read_as_user("mine", Owner::user_or_root), "a");
  EXPECT_FALSE(read_as_user("mine", Owner::user));  // root's directory
  ASSERT_EQ(chown((temporary / "cache").c_str(), user, user), 0);
  EXPECT_EQ(read_as_user("mine", Owner::user), "a");
  EXPECT_EQ(read_as_user("roots", Owner::user_or_root), "b");
  EXPECT_FALSE(read_as_user("roots", Owner::user));
}

TEST(CacheDirectory, ReplacesALinkInsteadOfFollowingIt) {
  const TemporaryDirectory temporary;
  const auto directory = opened(temporary / "cache");
  test::write_file(temporary / "precious", "precious");
  fs::create_symlink(temporary / "precious", temporary / "cache/a.kernel");
  EXPECT_EQ(directory->write("a.kernel", "kernel"), "");
  EXPECT_EQ(directory->read("a.kernel"), "kernel");
  EXPECT_EQ(test::read_file(temporary / "precious"), "precious");
}

TEST(CacheDirectory, FollowsTheDirectoryNotItsPath) {
  const TemporaryDirectory temporary;
  const auto directory = opened(temporary / "cache");
  ASSERT_EQ(directory->write("a.kernel", "mine"), "");
  fs::rename(temporary / "cache", temporary / "moved");
  fs::create_directory(temporary / "cache");
  test::write_file(temporary / "cache/a.kernel", "planted");
  EXPECT_EQ(directory->read("a.kernel"), "mine");
}

TEST(CacheDirectory, UseIsNotedNowAndThen) {
  const TemporaryDirectory temporary;
  const auto directory = opened(temporary / "cache");
  ASSERT_EQ(directory->write("a.kernel", "kernel"), "");
  const auto path = temporary / "cache/a.kernel";
  const auto old = fs::file_time_type::clock::now() - std::chrono::minutes(5);
  fs::last_write_time(path, old);
  directory->touch("a.kernel", std::chrono::minutes(10));
  EXPECT_EQ(fs::last_write_time(path), old);
  directory->touch("a.kernel", std::chrono::minutes(1));
  EXPECT_GT(fs::last_write_time(path), old);
}

TEST(CacheDirectory, LocksExcludeOneAnother) {
  using std::chrono::milliseconds;
  const TemporaryDirectory temporary;
  const auto directory = opened(temporary / "cache");
  {
    const FileLock first = directory->lock(7, milliseconds(0));
    EXPECT_TRUE(first.is_held());
    EXPECT_FALSE(directory->lock(7, milliseconds(30)).is_held());
    EXPECT_TRUE(directory->lock(8, milliseconds(0)).is_held());
  }
  EXPECT_TRUE(directory->lock(7, milliseconds(0)).is_held());
}

TEST(CacheDirectory, AForkedChildDoesNotKeepALock) {
  const TemporaryDirectory temporary;
  const auto directory = opened(temporary / "cache");
  pid_t child = 0;
  {
    const FileLock lock = directory->lock(7, std::chrono::milliseconds(0));
    child = fork();
    if (child == 0) {
      pause();
      _exit(0);
    }
  }
  EXPECT_TRUE(directory->lock(7, std::chrono::milliseconds(0)).is_held());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace flashcore
