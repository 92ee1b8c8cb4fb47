#include "runtime/workspace.h"

#include <array>
#include <cstdint>
#include <mutex>

#include <fmt/format.h>

#include "dsl/error.h"
#include "runtime/cuda/device.h"
#include "runtime/module_plan.h"
#include "runtime/no_fork.h"

namespace flashcore {
namespace {

/// CUmemPoolProps of the driver: memory of a device that no other process is handed.
struct PoolProperties {
  int allocation = 1;  ///< pinned, the one kind there is
  int handles = 0;
  int place = 1;  ///< a device
  int device = 0;
  void* security = nullptr;
  std::size_t most_bytes = 0;  ///< no limit
  std::array<unsigned char, 56> reserved{};
};

constexpr int release_threshold = 4;  // CUmemPool_attribute
constexpr std::size_t most_devices = 64;

/// That of a device, whose context is current. Never destroyed: launches may come as long as the
/// process lives.
CudaMemoryPool pool_of(const Driver& driver, int device) {
  static std::mutex mutex;
  static std::array<CudaMemoryPool, most_devices> pools{};
  const auto place = static_cast<std::size_t>(device);
  if (place >= most_devices)
    throw InternalError(fmt::format("GPU {} of at most {}", device, most_devices));
  const NoFork whole;
  const std::lock_guard lock(mutex);
  if (pools[place] == nullptr) {
    const BesideCaptures beside(driver);
    const PoolProperties properties{.device = device};
    CudaMemoryPool pool = nullptr;
    driver.check(driver.cuMemPoolCreate(&pool, &properties), "a memory pool for workspaces");
    std::uint64_t kept = std::uint64_t{64} << 20;
    driver.check(driver.cuMemPoolSetAttribute(pool, release_threshold, &kept),
                 "what a memory pool for workspaces keeps");
    pools[place] = pool;
  }
  return pools[place];
}

}  // namespace

void* GivenWorkspace::reserve(std::size_t bytes) {
  constexpr std::size_t step = ModulePlan::workspace_alignment;
  const auto address = reinterpret_cast<std::uintptr_t>(data_);
  if (bytes_ < bytes || address % step != 0)
    throw DeviceError(
        {.what = "the workspace of a launch",
         .why = fmt::format("it has {} bytes at {:#x}, and the launch wants {} at a multiple of {}",
                            bytes_, address, bytes, step),
         .fix = "memory of bind(tensors, scalars).workspace_bytes bytes on the tensors' GPU",
         .where = {}});
  return data_;
}

void* StreamWorkspace::reserve(std::size_t bytes) {
  if (address_ != 0) throw InternalError("a workspace that is reserved twice");
  const Driver& driver = Driver::get();
  const ContextGuard context(driver, device_);
  driver.check(driver.cuMemAllocFromPoolAsync(&address_, bytes, pool_of(driver, device_), stream_),
               fmt::format("the allocation of {} bytes for a workspace on GPU {}", bytes, device_));
  return reinterpret_cast<void*>(address_);  // NOLINT(performance-no-int-to-ptr)
}

StreamWorkspace::~StreamWorkspace() {
  if (address_ == 0) return;
  const Driver& driver = Driver::get();
  const ContextGuard context(driver, device_);
  // What fails here has failed before, and the next call of the driver tells.
  (void)driver.cuMemFreeAsync(address_, stream_);
}

}  // namespace flashcore
