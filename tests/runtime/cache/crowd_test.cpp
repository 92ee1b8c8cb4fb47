// Many threads and many processes at one cache: one of them compiles, and kernels that leave while
// others are read make nothing worse than a compile.
#include <atomic>
#include <filesystem>
#include <sstream>
#include <thread>

#include <gmock/gmock.h>

#include "tests/runtime/cache/cache_fixture.h"
#include "tests/runtime/support/heavy.h"
#include "tests/runtime/support/processes.h"

namespace flashcore {
namespace {

namespace fs = std::filesystem;
using test::Finished;
using test::KernelCacheTest;
using test::key_of;

// What the workers tell, added up.
std::vector<std::uint64_t> sums_of(const std::vector<Finished>& workers, std::size_t numbers) {
  std::vector<std::uint64_t> sums(numbers);
  for (const Finished& worker : workers) {
    EXPECT_EQ(worker.status, 0) << worker.output;
    std::istringstream told(worker.output);
    for (std::uint64_t& sum : sums) {
      std::uint64_t number = 0;
      EXPECT_TRUE(told >> number) << worker.output;
      sum += number;
    }
  }
  return sums;
}

TEST_F(KernelCacheTest, ThreadsCompileOnce) {
  constexpr int threads = 64;
  for (const std::string& place : {directory, std::string()}) {
    KernelCache cache({.directory = place});
    builds = 0;
    std::atomic<int> from_cache = 0;
    std::vector<std::thread> asking;
    for (int i = 0; i < threads; ++i) {
      asking.emplace_back([&] {
        const auto outcome = cache.get(key_of("a"), [&] {
          ++builds;
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
          return Cubin{.bytes = "cubin", .resources = {}};
        });
        from_cache += outcome.from_cache ? 1 : 0;
        EXPECT_EQ(outcome.cubin->bytes, "cubin");
      });
    }
    for (std::thread& thread : asking) thread.join();
    EXPECT_EQ(builds, 1);
    EXPECT_EQ(from_cache, threads - 1);
    EXPECT_EQ(cache.statistics().compiled, 1U);
    EXPECT_EQ(cache.statistics().memory, threads - 1U);
  }
}

TEST_F(KernelCacheTest, ProcessesCompileOnceTogether) {
  constexpr int processes = 64;
  const int threads = test::light_or_heavy(8, 64);
  for (int round = 0; round < test::light_or_heavy(1, 5); ++round) {
    fs::remove_all(directory);
    fs::remove(temporary / "builds");
    const std::vector<std::uint64_t> did =
        sums_of(test::run_workers(processes, {"fake-build", directory, temporary / "builds", "150",
                                              std::to_string(threads)}),
                3);
    EXPECT_EQ(did[0], 1U);              // compiled
    EXPECT_EQ(did[1], processes - 1U);  // found in the directory, each once
    EXPECT_EQ(did[2], processes * (threads - 1U));
    EXPECT_EQ(test::read_file(temporary / "builds"), "built\n");
  }
}

TEST_F(KernelCacheTest, EvictionRacesWithLoads) {
  constexpr std::uint64_t max_bytes = 300'000;  // room for ten of twenty
  const std::string rounds = std::to_string(test::light_or_heavy(150, 5000));
  std::vector<std::vector<std::string>> workers;
  for (int seed = 0; seed < test::light_or_heavy(8, 16); ++seed)
    workers.push_back(
        {"churn", directory, std::to_string(max_bytes), rounds, std::to_string(seed)});
  const std::vector<std::uint64_t> did = sums_of(test::run_workers(workers), 2);
  EXPECT_GT(did[0], 100U);  // compiled
  EXPECT_GT(did[1], 100U);  // loaded
  std::uint64_t bytes = 0;
  for (const auto& file : fs::directory_iterator(directory)) {
    EXPECT_FALSE(file.path().string().ends_with(".damaged")) << file.path();
    bytes += file.file_size();
  }
  // Each writer looked after it had written; others may have written since.
  EXPECT_LT(bytes, max_bytes + workers.size() * 40'000);
  fmt::print("{} compiled, {} loaded\n", did[0], did[1]);
}

}  // namespace
}  // namespace flashcore
