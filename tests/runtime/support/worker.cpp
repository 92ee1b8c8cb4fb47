// What the tests of the cache run in other processes.
//
//   worker fake-build <directory> <file> <milliseconds> <threads>
//       so many threads get one kernel; the "compiler" takes that long and adds a line to the file;
//       tells how many kernels were compiled, found in the directory and in memory
//   worker churn <directory> <bytes> <rounds> <seed>
//       gets kernels at random from a directory that has not room for all, and removes some; tells
//       how many were compiled and loaded
//   worker build
//       compiles the kernel `scale` for sm_80 as a user would, and tells about it
//   worker build-spilling
//       the same with a kernel that spills
//   worker ptx
//       prints the PTX of `scale`
//   worker gpu
//       tells whether there is one
#include <atomic>
#include <chrono>
#include <cstdio>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "dsl/error.h"
#include "runtime/cache/cache.h"
#include "runtime/cache/digest.h"
#include "runtime/cache/toolchain.h"
#include "runtime/kernel.h"
#include "tests/runtime/support/kernels.h"

namespace flashcore::test {
namespace {

int fake_build(const std::string& directory, const std::string& file, int milliseconds,
               int threads) {
  KernelCache cache({.directory = directory});
  const CacheKey key = make_key(scale_kernel(), "sm_80", {}, {});
  std::atomic<int> wrong = 0;
  std::vector<KernelCache::Outcome> kept(static_cast<std::size_t>(threads));
  const auto ask = [&](KernelCache::Outcome& outcome) {
    outcome = cache.get(key, [&] {
      const int log = open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      if (write(log, "built\n", 6) != 6) std::abort();
      close(log);
      std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
      return Cubin{.bytes = std::string(100'000, 'c'), .resources = {.registers = 40}};
    });
    const bool right = outcome.cubin->bytes == std::string(100'000, 'c') &&
                       outcome.cubin->resources.registers == 40;
    wrong += right ? 0 : 1;
  };
  std::vector<std::thread> asking;
  for (KernelCache::Outcome& outcome : kept) asking.emplace_back([&] { ask(outcome); });
  for (std::thread& thread : asking) thread.join();
  const CacheStatistics did = cache.statistics();
  fmt::print("{} {} {}\n", did.compiled, did.directory, did.memory);
  return wrong == 0 ? 0 : 1;
}

int churn(const std::string& directory, std::uint64_t max_bytes, int rounds, unsigned seed) {
  std::mt19937 random(seed);
  std::uint64_t compiled = 0, loaded = 0;
  for (int round = 0; round < rounds; ++round) {
    KernelCache cache({.directory = directory, .max_bytes = max_bytes});
    KernelSource source = scale_kernel();
    source.body = fmt::format("kernel {}", random() % 20);
    const CacheKey key = make_key(source, "sm_80", {}, {});
    std::string code = source.body;
    code.resize(20'000 + code.size() * 1000, code.back());
    const auto outcome = cache.get(key, [&] { return Cubin{.bytes = code, .resources = {}}; });
    if (outcome.cubin->bytes != code) return 1;
    ++(outcome.from_cache ? loaded : compiled);
    if (random() % 8 == 0) {
      const auto files = cache.directory()->files();
      const std::string& name = files[random() % files.size()].name;  // there are locks at least
      if (name.ends_with(".kernel")) cache.directory()->remove(name);
    }
  }
  fmt::print("{} {}\n", compiled, loaded);
  return 0;
}

int build(KernelSource source) {
  const auto kernel = CompiledKernel::build(std::move(source), "sm_80");
  fmt::print("from_cache={} compiled={} nvrtc_open={} cubin={}\n", kernel->from_cache(),
             kernel->compile_ms() > 0, InstalledNvrtc::shared()->is_open(),
             digest_of(kernel->cubin()));
  return 0;
}

}  // namespace
}  // namespace flashcore::test

int main(int count, char** arguments) {
  using namespace flashcore::test;
  const std::string command = count > 1 ? arguments[1] : "";
  try {
    if (command == "fake-build")
      return fake_build(arguments[2], arguments[3], std::stoi(arguments[4]),
                        std::stoi(arguments[5]));
    if (command == "churn")
      return churn(arguments[2], std::stoull(arguments[3]), std::stoi(arguments[4]),
                   static_cast<unsigned>(std::stoul(arguments[5])));
    if (command == "build") return build(scale_kernel());
    if (command == "build-spilling") return build(spilling_kernel());
    if (command == "gpu") {
      std::string why = "available";
      flashcore::gpu_is_available(&why);
      fmt::print("{}\n", why);
      return 0;
    }
    if (command == "ptx") {
      fmt::print("{}", flashcore::CompiledKernel::build(scale_kernel(), "sm_80")->ptx());
      return 0;
    }
  } catch (const flashcore::Error& error) {
    fmt::print("{}\n", error.what());
    return 3;
  }
  return 2;
}
