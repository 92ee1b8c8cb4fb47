// What must cost time and nothing else: damage, strangers, full and read-only disks, killed
// processes.
#include <filesystem>
#include <thread>

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/cache/cache.h"
#include "runtime/cache/envelope.h"
#include "tests/runtime/cache/cache_fixture.h"

namespace flashcore {
namespace {

namespace fs = std::filesystem;
using test::KernelCacheTest;
using test::key_of;
using testing::HasSubstr;

TEST_F(KernelCacheTest, DamageIsAMissAndIsRepaired) {
  for (const std::string& damage :
       {std::string(), std::string("FCKERNEL"), std::string(5000, 'x')}) {
    KernelCache first({.directory = directory});
    get(first);
    const int before = builds;
    test::write_file(file_of("a"), damage);
    KernelCache second({.directory = directory});
    EXPECT_FALSE(get(second).from_cache);
    KernelCache third({.directory = directory});
    EXPECT_TRUE(get(third).from_cache);
    EXPECT_EQ(builds, before + 1);
  }
  EXPECT_EQ(warnings.size(), 3U);
  EXPECT_THAT(
      warnings[0],
      HasSubstr(
          "is damaged or foreign and set aside as *.damaged; scale for sm_80 is compiled again"));
}

TEST_F(KernelCacheTest, AKernelUnderAnotherNameIsAMiss) {
  KernelCache cache({.directory = directory});
  get(cache, "a");
  fs::copy_file(file_of("a"), file_of("b"));
  KernelCache again({.directory = directory});
  EXPECT_EQ(get(again, "b").cubin->bytes[0], 'b');
  EXPECT_EQ(builds, 2);
}

TEST_F(KernelCacheTest, AStuckProcessDelaysButDoesNotStop) {
  const std::string lock = key_of("a").name.substr(0, 2);
  KernelCache cache({.directory = directory, .lock_timeout = std::chrono::milliseconds(50)});
  const FileLock stuck =
      cache.directory()->lock(std::stoi(lock, nullptr, 16), std::chrono::milliseconds(0));
  ASSERT_TRUE(stuck.is_held());
  EXPECT_FALSE(get(cache).from_cache);
  EXPECT_TRUE(fs::exists(file_of("a")));
}

TEST_F(KernelCacheTest, ADeadProcessHoldsNoLock) {
  const int number = std::stoi(key_of("a").name.substr(0, 2), nullptr, 16);
  const pid_t child = fork();
  if (child == 0) {
    std::string why;
    const auto opened = CacheDirectory::open(directory, why);
    const FileLock lock = opened->lock(number, std::chrono::milliseconds(0));
    kill(getpid(), SIGKILL);
  }
  waitpid(child, nullptr, 0);
  KernelCache cache({.directory = directory});
  const auto start = std::chrono::steady_clock::now();
  get(cache);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST_F(KernelCacheTest, AnUntrustedDirectoryIsSaidOnceAndNotUsed) {
  fs::create_directory(directory);
  fs::permissions(directory, fs::perms(0777));
  KernelCache cache({.directory = directory});
  get(cache, "a");
  get(cache, "b");
  EXPECT_TRUE(get(cache, "a").from_cache);  // memory keeps them instead
  EXPECT_EQ(builds, 2);
  EXPECT_TRUE(fs::is_empty(directory));
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0], HasSubstr("others may write to it (mode 0777)"));
  EXPECT_THAT(warnings[0], HasSubstr("FLASHCORE_CACHE_DIR"));
}

TEST_F(KernelCacheTest, ADirectoryThatIsDeletedIsMadeAgain) {
  KernelCache cache({.directory = directory});
  get(cache, "a");
  fs::remove_all(directory);
  EXPECT_FALSE(get(cache, "b").from_cache);
  EXPECT_TRUE(fs::exists(file_of("b")));
  EXPECT_TRUE(get(cache, "b").from_cache);
  fs::remove_all(directory);
  KernelCache other({.directory = directory});  // another process makes it
  get(other, "c");
  EXPECT_FALSE(get(cache, "d").from_cache);
  EXPECT_TRUE(fs::exists(file_of("c")));
  EXPECT_TRUE(fs::exists(file_of("d")));
  EXPECT_TRUE(get(cache, "c").from_cache);
  EXPECT_THAT(warnings, testing::IsEmpty());
}

TEST_F(KernelCacheTest, ADirectoryThatCouldNotBeOpenedIsTriedAgain) {
  fs::create_directory(directory);
  fs::permissions(directory, fs::perms(0777));
  KernelCache cache({.directory = directory, .open_again_after = std::chrono::milliseconds(0)});
  KernelCache patient({.directory = directory});
  get(cache, "a");
  EXPECT_EQ(cache.directory(), nullptr);
  fs::permissions(directory, fs::perms(0700));
  get(cache, "b");
  get(patient, "c");
  EXPECT_TRUE(fs::exists(file_of("b")));
  EXPECT_FALSE(fs::exists(file_of("c")));  // not before five seconds are over
}

TEST_F(KernelCacheTest, ADamagedEntryIsSetAsideAndTheFirstToLeave) {
  {
    KernelCache cache({.directory = directory});
    get(cache, "a", 10'000);
  }
  fs::resize_file(file_of("a"), 9'000);
  KernelCache cache({.directory = directory, .max_bytes = 100'000});
  EXPECT_FALSE(get(cache, "a", 10'000).from_cache);
  EXPECT_TRUE(fs::exists(file_of("a")));
  EXPECT_TRUE(fs::exists(file_of("a") + ".damaged"));
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0], HasSubstr("set aside as *.damaged; "));
  for (const char* body : {"b", "c", "d", "e", "f", "g", "i", "j", "k", "h"})
    get(cache, body, 10'000);
  EXPECT_FALSE(fs::exists(file_of("a") + ".damaged"));
  EXPECT_TRUE(fs::exists(file_of("h")));
}

TEST_F(KernelCacheTest, AReadOnlyDirectoryServesAndIsSaidOnce) {
  {
    KernelCache cache({.directory = directory});
    get(cache, "a");
  }
  fs::permissions(directory, fs::perms(0555));
  fs::permissions(file_of("a"), fs::perms(0644));
  fs::permissions(temporary.path(), fs::perms(0755));
  const auto root = geteuid();
  if (!unprivileged()) GTEST_SKIP() << "cannot become another user";
  {
    KernelCache cache({.directory = directory});
    EXPECT_TRUE(get(cache, "a").from_cache);  // root's, as baked into an image
    EXPECT_FALSE(get(cache, "b").from_cache);
    EXPECT_FALSE(get(cache, "c").from_cache);
  }
  ASSERT_EQ(seteuid(root), 0);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0], HasSubstr("cannot write to the cache directory"));
  EXPECT_THAT(warnings[0], HasSubstr("create: Permission denied"));
}

TEST_F(KernelCacheTest, AFullDiskLosesTheKernelAndNothingElse) {
  // A limit on the size of files fails like a disk that fills up in the middle of a write.
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 5000, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  {
    KernelCache cache({.directory = directory});
    EXPECT_EQ(get(cache, "a", 100'000).cubin->bytes.size(), 100'001U);
    EXPECT_FALSE(get(cache, "b", 1000).from_cache);
  }
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_FALSE(fs::exists(file_of("a")));
  EXPECT_TRUE(fs::exists(file_of("b")));
  for (const auto& file : fs::directory_iterator(directory)) {
    EXPECT_FALSE(file.path().filename().string().starts_with("unfinished.")) << file.path();
  }
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0], HasSubstr("write: File too large"));
}

TEST_F(KernelCacheTest, AKilledWriterLeavesWholeFilesOrNone) {
  int written = 0;
  for (int round = 0; round < 60; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      set_log_hook({});
      KernelCache cache({.directory = directory});
      for (int i = 0;; ++i) get(cache, std::to_string(i), 200'000);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(500 + 331 * round));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  std::string why;
  const auto opened = CacheDirectory::open(directory, why);
  for (const auto& file : opened->files()) {
    if (!file.name.ends_with(".kernel")) continue;
    EXPECT_TRUE(unseal(*opened->read(file.name), 3)) << file.name;
    ++written;
  }
  EXPECT_GT(written, 0);
}

TEST_F(KernelCacheTest, WhatACrashLeftIsRemoved) {
  fs::create_directory(directory);
  fs::permissions(directory, fs::perms(0700));
  test::write_file(directory + "/unfinished.1.1.0", "half");
  test::write_file(directory + "/unfinished.2.1.0", "being written");
  fs::last_write_time(directory + "/unfinished.1.1.0",
                      fs::file_time_type::clock::now() - std::chrono::hours(2));
  test::write_file(directory + "/unfinished.3.1.0", "half");
  fs::last_write_time(directory + "/unfinished.3.1.0",
                      fs::file_time_type::clock::now() + std::chrono::hours(2));
  KernelCache cache({.directory = directory});
  get(cache);
  EXPECT_FALSE(fs::exists(directory + "/unfinished.1.1.0"));
  EXPECT_FALSE(fs::exists(directory + "/unfinished.3.1.0"));  // of a clock that went wrong
  EXPECT_TRUE(fs::exists(directory + "/unfinished.2.1.0"));
}

}  // namespace
}  // namespace flashcore
