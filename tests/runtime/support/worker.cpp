// What the tests of the cache run in other processes.
//
//   worker fake-build <directory> <file> <milliseconds>
//       gets one kernel; the "compiler" takes that long and adds a line to the file
//   worker build
//       compiles the kernel `scale` for sm_80 as a user would, and tells about it
//   worker build-spilling
//       the same with a kernel that spills
//   worker ptx
//       prints the PTX of `scale`
//   worker gpu
//       tells whether there is one
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

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

int fake_build(const std::string& directory, const std::string& file, int milliseconds) {
  KernelCache cache({.directory = directory});
  const CacheKey key = make_key(scale_kernel(), "sm_80", {}, {});
  const auto outcome = cache.get(key, [&] {
    const int log = open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (write(log, "built\n", 6) != 6) std::abort();
    close(log);
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    return Cubin{.bytes = std::string(100'000, 'c'), .resources = {.registers = 40}};
  });
  const bool right =
      outcome.cubin->bytes == std::string(100'000, 'c') && outcome.cubin->resources.registers == 40;
  return right ? 0 : 1;
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
      return fake_build(arguments[2], arguments[3], std::stoi(arguments[4]));
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
