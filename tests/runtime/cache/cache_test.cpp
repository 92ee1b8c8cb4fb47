#include "runtime/cache/cache.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <thread>

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dsl/error.h"
#include "runtime/cache/envelope.h"
#include "runtime/log.h"
#include "tests/runtime/support/kernels.h"
#include "tests/runtime/support/processes.h"
#include "tests/runtime/support/scoped_environment.h"
#include "tests/runtime/support/temporary_directory.h"
#include "tests/runtime/support/timing.h"

namespace flashcore {
namespace {

namespace fs = std::filesystem;
using test::TemporaryDirectory;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

CacheKey key_of(const std::string& body) {
  KernelSource source = test::scale_kernel();
  source.body = body;
  return make_key(source, "sm_80", {}, {});
}

class KernelCacheTest : public testing::Test {
 protected:
  KernelCacheTest() {
    set_log_hook([this](LogLevel level, std::string_view text) {
      if (level == LogLevel::warn) warnings.emplace_back(text);
    });
  }
  ~KernelCacheTest() override { set_log_hook({}); }

  KernelCache::Outcome get(KernelCache& cache, const std::string& body = "a",
                           std::size_t bytes = 1000) {
    return cache.get(key_of(body), [&] {
      ++builds;
      return Cubin{.bytes = body + std::string(bytes, 'c'), .resources = {}};
    });
  }
  [[nodiscard]] std::string file_of(const std::string& body) const {
    return directory + "/" + key_of(body).name + ".kernel";
  }
  // A user who is not root, who could write anywhere.
  static bool unprivileged() { return geteuid() != 0 || seteuid(12345) == 0; }

  TemporaryDirectory temporary;
  std::string directory = temporary / "cache";
  std::atomic<int> builds = 0;
  std::vector<std::string> warnings;
};

TEST_F(KernelCacheTest, KeepsKernelsBetweenRuns) {
  {
    KernelCache cache({.directory = directory});
    EXPECT_FALSE(get(cache).from_cache);
  }
  KernelCache cache({.directory = directory});
  const KernelCache::Outcome outcome = get(cache);
  EXPECT_TRUE(outcome.from_cache);
  EXPECT_EQ(outcome.cubin->bytes, "a" + std::string(1000, 'c'));
  EXPECT_EQ(builds, 1);
  EXPECT_EQ(get(cache).cubin, outcome.cubin);  // while it is in use, there is one
  EXPECT_THAT(warnings, IsEmpty());
}

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
  EXPECT_EQ(warnings.size(), 6U);  // once before and once after taking the lock
  EXPECT_THAT(warnings[0], HasSubstr("is damaged or foreign; scale for sm_80 is compiled again"));
}

TEST_F(KernelCacheTest, AKernelUnderAnotherNameIsAMiss) {
  KernelCache cache({.directory = directory});
  get(cache, "a");
  fs::copy_file(file_of("a"), file_of("b"));
  KernelCache again({.directory = directory});
  EXPECT_EQ(get(again, "b").cubin->bytes[0], 'b');
  EXPECT_EQ(builds, 2);
}

TEST_F(KernelCacheTest, ThreadsCompileOnce) {
  for (const std::string& place : {directory, std::string()}) {
    KernelCache cache({.directory = place});
    builds = 0;
    std::atomic<int> from_cache = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 16; ++i) {
      threads.emplace_back([&] {
        const auto outcome = cache.get(key_of("a"), [&] {
          ++builds;
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
          return Cubin{.bytes = "cubin", .resources = {}};
        });
        from_cache += outcome.from_cache ? 1 : 0;
        EXPECT_EQ(outcome.cubin->bytes, "cubin");
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(builds, 1);
    EXPECT_EQ(from_cache, 15);
  }
}

TEST_F(KernelCacheTest, ProcessesCompileOnce) {
  const auto workers =
      test::run_workers(12, {"fake-build", directory, temporary / "builds", "150"});
  for (const test::Finished& worker : workers) EXPECT_EQ(worker.status, 0) << worker.output;
  EXPECT_EQ(test::read_file(temporary / "builds"), "built\n");
}

TEST_F(KernelCacheTest, AFailureReachesAllAndIsNotKept) {
  KernelCache cache({.directory = directory});
  std::atomic<int> failures = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      try {
        cache.get(key_of("a"), [&]() -> Cubin {
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          throw CompileError({.what = "refused", .why = "a test", .fix = "", .where = {}});
        });
      } catch (const CompileError&) {
        ++failures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 4);
  EXPECT_FALSE(get(cache).from_cache);
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

TEST_F(KernelCacheTest, TheLeastRecentlyUsedLeave) {
  const auto aged = [&](const std::string& body, int minutes) {
    fs::last_write_time(file_of(body),
                        fs::file_time_type::clock::now() - std::chrono::minutes(minutes));
  };
  KernelCache cache({.directory = directory, .max_bytes = 100'000});
  for (const char* body : {"a", "b", "c"}) get(cache, body, 30'000);
  aged("a", 300);
  aged("b", 200);
  aged("c", 100);
  {
    KernelCache reader({.directory = directory, .max_bytes = 100'000});
    get(reader, "a");  // used again
  }
  get(cache, "d", 30'000);  // 120 kB and over the limit
  EXPECT_TRUE(fs::exists(file_of("a")));
  EXPECT_FALSE(fs::exists(file_of("b")));
  EXPECT_FALSE(fs::exists(file_of("c")));  // 7/8 of the limit is the goal
  EXPECT_TRUE(fs::exists(file_of("d")));
}

TEST_F(KernelCacheTest, WhatACrashLeftIsRemoved) {
  fs::create_directory(directory);
  fs::permissions(directory, fs::perms(0700));
  test::write_file(directory + "/unfinished.1.1.0", "half");
  test::write_file(directory + "/unfinished.2.1.0", "being written");
  fs::last_write_time(directory + "/unfinished.1.1.0",
                      fs::file_time_type::clock::now() - std::chrono::hours(2));
  KernelCache cache({.directory = directory});
  get(cache);
  EXPECT_FALSE(fs::exists(directory + "/unfinished.1.1.0"));
  EXPECT_TRUE(fs::exists(directory + "/unfinished.2.1.0"));
}

TEST_F(KernelCacheTest, AWarmLoadIsQuick) {
  const std::string body(40'000, 's');  // a long source
  {
    KernelCache cache({.directory = directory});
    get(cache, body, 100'000);
  }
  const CacheKey key = key_of(body);
  std::vector<double> times;
  for (int i = 0; i < 50; ++i) {
    KernelCache cache({.directory = directory});
    const auto start = std::chrono::steady_clock::now();
    EXPECT_TRUE(
        cache.get(key, []() -> Cubin { throw std::logic_error("not reached"); }).from_cache);
    times.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
            .count());
  }
  std::sort(times.begin(), times.end());
  fmt::print("warm load of a 100 kB kernel: {:.3f} ms, median of 50\n", times[25]);
  EXPECT_LT(times[25], test::limit_in_release(1));
}

TEST_F(KernelCacheTest, TheHookMayComeBack) {
  // A hook that asks the cache again would hang if a lock were held or a compile in flight
  // meanwhile.
  fs::create_directory(directory);
  fs::permissions(directory, fs::perms(0700));
  KernelCache cache({.directory = directory});
  test::write_file(file_of("a"), "damaged");
  int told = 0;
  set_log_hook([&](LogLevel, std::string_view) {
    if (++told < 3) get(cache, "a");
  });
  get(cache, "a");
  EXPECT_GT(told, 0);
}

TEST(CacheSettings, ComeFromTheEnvironment) {
  const auto settings = [](std::map<std::string, std::optional<std::string>> variables) {
    for (const char* name : {"FLASHCORE_CACHE", "FLASHCORE_CACHE_DIR", "FLASHCORE_CACHE_MAX_BYTES",
                             "FLASHCORE_CACHE_LOCK_SECONDS", "XDG_CACHE_HOME"}) {
      variables.emplace(name, std::nullopt);
    }
    variables.emplace("HOME", "/home/someone");
    const test::ScopedEnvironment environment(variables);
    return CacheSettings::from_environment();
  };
  EXPECT_EQ(settings({}).directory, "/home/someone/.cache/flashcore");
  EXPECT_EQ(settings({}).max_bytes, std::uint64_t{1} << 30);
  EXPECT_EQ(settings({{"XDG_CACHE_HOME", "/x"}}).directory, "/x/flashcore");
  EXPECT_EQ(settings({{"XDG_CACHE_HOME", "x"}}).directory, "/home/someone/.cache/flashcore");
  EXPECT_EQ(settings({{"XDG_CACHE_HOME", "/x"}, {"FLASHCORE_CACHE_DIR", "/y"}}).directory, "/y");
  EXPECT_EQ(settings({{"FLASHCORE_CACHE", "off"}}).directory, "");
  EXPECT_EQ(settings({{"FLASHCORE_CACHE_MAX_BYTES", "1000"}}).max_bytes, 1000U);
  EXPECT_EQ(settings({{"FLASHCORE_CACHE_LOCK_SECONDS", "2"}}).lock_timeout,
            std::chrono::seconds(2));
  EXPECT_THROW(settings({{"FLASHCORE_CACHE_MAX_BYTES", "1GB"}}), CacheError);
  EXPECT_THROW(settings({{"FLASHCORE_CACHE_MAX_BYTES", "-1"}}), CacheError);
}

}  // namespace
}  // namespace flashcore
