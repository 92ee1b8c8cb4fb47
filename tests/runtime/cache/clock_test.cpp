// Clocks that were wrong for a while, or differ between hosts that share a directory: what carries
// such a time neither stays for ever nor drives out what is in use.
#include <filesystem>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include "runtime/cache/cache.h"
#include "runtime/cache/directory.h"
#include "tests/runtime/cache/cache_fixture.h"

namespace flashcore {
namespace {

namespace fs = std::filesystem;
using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::system_clock;
using test::KernelCacheTest;

constexpr hours year{24 * 365};

// As a file system takes it: any number of seconds.
void date(const std::string& file, time_t seconds) {
  const timespec times[2] = {{.tv_sec = seconds, .tv_nsec = 0}, {.tv_sec = seconds, .tv_nsec = 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, file.c_str(), times, 0), 0);
}

void date(const std::string& file, system_clock::duration from_now) {
  date(file, system_clock::to_time_t(system_clock::now() + from_now));
}

TEST_F(KernelCacheTest, WhatComesFromTheFutureLeavesFirst) {
  KernelCache cache({.directory = directory, .max_bytes = 100'000});
  for (const char* body : {"a", "b", "c"}) get(cache, body, 30'000);
  date(file_of("a"), minutes(-300));
  date(file_of("b"), 10 * year);
  date(file_of("c"), minutes(50));  // another host's clock, a little ahead
  get(cache, "d", 30'000);
  EXPECT_FALSE(fs::exists(file_of("b")));
  EXPECT_FALSE(fs::exists(file_of("a")));  // 7/8 of the limit is the goal
  EXPECT_TRUE(fs::exists(file_of("c")));
  EXPECT_TRUE(fs::exists(file_of("d")));
}

TEST_F(KernelCacheTest, ADirectoryFullOfTheFutureTakesNewKernels) {
  {
    KernelCache cache({.directory = directory});
    for (char body = 'a'; body < 'i'; ++body) {
      get(cache, std::string(1, body), 30'000);
      date(file_of(std::string(1, body)), body % 2 == 0 ? year : hours(3));
    }
  }
  for (const char* body : {"x", "y", "z"}) {
    KernelCache cache({.directory = directory, .max_bytes = 110'000});
    EXPECT_FALSE(get(cache, body, 30'000).from_cache);
  }
  for (const char* body : {"x", "y", "z"}) {
    KernelCache cache({.directory = directory, .max_bytes = 110'000});
    EXPECT_TRUE(get(cache, body, 30'000).from_cache) << body;
  }
}

TEST_F(KernelCacheTest, AUseGivesItTheTimeOfNow) {
  for (const time_t wrong : {time_t{0}, time_t{-100'000}, time_t{4'000'000'000}}) {
    KernelCache cache({.directory = directory});
    get(cache);
    date(file_of("a"), wrong);
    KernelCache other({.directory = directory});
    EXPECT_TRUE(get(other).from_cache);
    const auto age = fs::file_time_type::clock::now() - fs::last_write_time(file_of("a"));
    EXPECT_LT(std::chrono::abs(age), minutes(1)) << wrong;
  }
}

TEST_F(KernelCacheTest, TimesBeyondWhatAClockCountsAreTold) {
  KernelCache cache({.directory = directory});
  get(cache);
  for (const time_t wrong : {time_t{-1} << 40, time_t{-1}, time_t{1} << 33, time_t{1} << 40}) {
    date(file_of("a"), wrong);
    for (const CacheDirectory::File& file : cache.directory()->files()) {
      if (file.name.ends_with(".kernel")) {
        EXPECT_EQ(system_clock::to_time_t(file.last_use), 0) << wrong;
      }
    }
  }
}

TEST_F(KernelCacheTest, UnfinishedFilesGoWhateverTheirDate) {
  fs::create_directory(directory);
  fs::permissions(directory, fs::perms(0700));
  const auto unfinished = [&](const char* name) {
    std::string file = directory + "/unfinished." + name;
    test::write_file(file, "half");
    return file;
  };
  date(unfinished("1970"), time_t{0});
  date(unfinished("future"), year);
  date(unfinished("old"), hours(-2));
  date(unfinished("ahead"), minutes(50));
  date(unfinished("now"), minutes(0));
  KernelCache cache({.directory = directory});
  get(cache);
  std::vector<std::string> left;
  for (const auto& file : fs::directory_iterator(directory)) {
    std::string name = file.path().filename();
    if (name.starts_with("unfinished.")) left.push_back(name.substr(11));
  }
  EXPECT_THAT(left, testing::UnorderedElementsAre("ahead", "now"));
}

}  // namespace
}  // namespace flashcore
