#include "runtime/cache/cache.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <thread>

#include <gmock/gmock.h>

#include "dsl/error.h"
#include "tests/runtime/cache/cache_fixture.h"
#include "tests/runtime/support/scoped_environment.h"
#include "tests/runtime/support/timing.h"

namespace flashcore {
namespace {

namespace fs = std::filesystem;
using test::KernelCacheTest;
using test::key_of;
using testing::IsEmpty;

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
  const CacheStatistics did = cache.statistics();
  EXPECT_EQ(did.directory, 1U);
  EXPECT_EQ(did.memory, 1U);
  EXPECT_EQ(did.compiled + did.bundle + did.failed, 0U);
  EXPECT_EQ(did.bytes_loaded, outcome.cubin->bytes.size());
  EXPECT_GT(did.load_ms, 0);
  EXPECT_THAT(warnings, IsEmpty());
}

TEST_F(KernelCacheTest, WhereNothingCanBeCompiledAnyCompilersKernelServes) {
  const auto made_by = [](const char* digest, const std::string& body = "a") {
    KernelSource source = test::scale_kernel();
    source.body = body;
    return make_key(source, "sm_80", {}, {.version = {13, 0}, .digest = digest});
  };
  const auto refuse = []() -> Cubin { throw CompileError({.what = "no", .why = "compiler"}); };
  {
    KernelCache cache({.directory = directory});
    (void)cache.get(made_by("one"), [] { return Cubin{.bytes = "of one", .resources = {}}; });
  }
  KernelCache cache({.directory = directory});
  EXPECT_THROW((void)cache.get(made_by("two"), refuse), CompileError);
  EXPECT_THROW((void)cache.get(made_by("two", "b"), refuse, Compiler::any), CompileError);
  const auto outcome = cache.get(made_by("two"), refuse, Compiler::any);
  EXPECT_TRUE(outcome.from_cache);
  EXPECT_EQ(outcome.cubin->bytes, "of one");
  EXPECT_THAT(warnings, IsEmpty());

  // A damaged one is passed over.
  KernelCache later({.directory = directory});
  fs::resize_file(directory + "/" + made_by("one").name + ".kernel", 40);
  EXPECT_THROW((void)later.get(made_by("two"), refuse, Compiler::any), CompileError);
  EXPECT_EQ(warnings.size(), 1U);
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

TEST_F(KernelCacheTest, EntriesOfEveryKindShareOneSize) {
  KernelCache cache({.directory = directory, .max_bytes = 100'000});
  get(cache, "a", 60'000);
  fs::last_write_time(file_of("a"), fs::file_time_type::clock::now() - std::chrono::hours(1));
  const auto keep = [&](const CacheKey& key) {
    return cache.entries().find_or_build(
        EntryKind::host_code, key, [](std::string_view) { return true; },
        [] { return std::string(60'000, 'h'); });
  };
  EXPECT_FALSE(keep(key_of("b")));
  EXPECT_TRUE(keep(key_of("b")));
  EXPECT_FALSE(keep(key_of("a")));  // a kernel's key is no host code's
  EXPECT_FALSE(fs::exists(file_of("a")));
  EXPECT_TRUE(fs::exists(directory + "/" + key_of("a").name + ".host"));
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
