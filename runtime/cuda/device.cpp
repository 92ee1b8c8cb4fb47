#include "runtime/cuda/device.h"

#include <array>
#include <atomic>
#include <charconv>
#include <map>
#include <mutex>

#include <fmt/format.h>

#include "dsl/error.h"
#include "runtime/no_fork.h"

namespace flashcore {
namespace {

// CUdevice_attribute
constexpr int attribute_multiprocessors = 16;
constexpr int attribute_l2_bytes = 38;
constexpr int attribute_major = 75;
constexpr int attribute_minor = 76;
constexpr int attribute_shared_per_block = 97;
// CUpointer_attribute
constexpr int attribute_device_ordinal = 9;
// CUstreamCaptureMode
constexpr int capture_mode_relaxed = 2;
// CUevent_flags
constexpr unsigned without_timing = 2;

// Kept until the process ends, as the CUDA runtime keeps them: giving one back could destroy it
// under the feet of a framework.
CudaContext primary_context(const Driver& driver, int device) {
  static std::mutex mutex;
  static auto* const contexts = new std::map<int, CudaContext>;
  const NoFork whole;
  const std::lock_guard lock(mutex);
  if (const auto known = contexts->find(device); known != contexts->end()) return known->second;
  CudaContext context = nullptr;
  driver.check(driver.cuDevicePrimaryCtxRetain(&context, device),
               fmt::format("GPU {} cannot be used", device));
  contexts->emplace(device, context);
  return context;
}

DeviceInfo query_device(const Driver& driver, int ordinal) {
  int count = 0;
  driver.check(driver.cuDeviceGetCount(&count), "the GPUs cannot be counted");
  if (ordinal < 0 || ordinal >= count) {
    throw DeviceError({.what = fmt::format("there is no GPU {}", ordinal),
                       .why = fmt::format("the driver sees {}, counted from 0", count),
                       .fix = "a smaller number, or check CUDA_VISIBLE_DEVICES",
                       .where = {}});
  }
  DeviceInfo info{.ordinal = ordinal};
  int device = 0;
  std::array<char, 256> name{};
  const std::string what = fmt::format("GPU {} cannot be queried", ordinal);
  driver.check(driver.cuDeviceGet(&device, ordinal), what);
  driver.check(driver.cuDeviceGetName(name.data(), static_cast<int>(name.size()), device), what);
  const auto attribute = [&](int which) {
    int value = 0;
    driver.check(driver.cuDeviceGetAttribute(&value, which, device), what);
    return value;
  };
  info.name = name.data();
  info.major = attribute(attribute_major);
  info.minor = attribute(attribute_minor);
  info.multiprocessors = attribute(attribute_multiprocessors);
  info.shared_per_block = attribute(attribute_shared_per_block);
  info.l2_bytes = attribute(attribute_l2_bytes);
  return info;
}

}  // namespace

std::string DeviceInfo::architecture() const { return fmt::format("sm_{}{}", major, minor); }

// Asked for once: in a child of fork() the driver answers nothing, and arrays in CPU memory still
// run what its parent's GPU would.
DeviceInfo device_info(const Driver& driver, int ordinal) {
  static std::mutex mutex;
  static auto* const devices = new std::map<int, DeviceInfo>;
  const NoFork whole;
  const std::lock_guard lock(mutex);
  const auto known = devices->find(ordinal);
  return known != devices->end()
             ? known->second
             : devices->emplace(ordinal, query_device(driver, ordinal)).first->second;
}

int multiprocessors_of(const Driver& driver, int ordinal) {
  static std::array<std::atomic<int>, 64> known{};
  const auto at = static_cast<std::size_t>(ordinal);
  if (at >= known.size()) return device_info(driver, ordinal).multiprocessors;
  int count = known[at].load(std::memory_order_relaxed);
  if (count == 0) {
    count = device_info(driver, ordinal).multiprocessors;
    known[at].store(count, std::memory_order_relaxed);
  }
  return count;
}

int current_device(const Driver& driver) {
  CudaContext context = nullptr;
  int device = 0;
  if (driver.cuCtxGetCurrent(&context) != 0 || context == nullptr) return 0;
  driver.check(driver.cuCtxGetDevice(&device), "the current GPU is unknown");
  return device;
}

int device_of(const Driver& driver, CudaAddress address) {
  int device = 0;
  const int result = driver.cuPointerGetAttribute(&device, attribute_device_ordinal, address);
  return result == 0 ? device : current_device(driver);
}

void order_streams(const Driver& driver, CudaStream first, CudaStream second) {
  if (first == second) return;
  CudaEvent event = nullptr;
  const char* const what = "one stream cannot be made to wait for another";
  driver.check(driver.cuEventCreate(&event, without_timing), what);
  const int recorded = driver.cuEventRecord(event, first);
  const int waits = recorded == 0 ? driver.cuStreamWaitEvent(second, event, 0) : recorded;
  (void)driver.cuEventDestroy_v2(event);  // it goes when nobody waits for it any more
  driver.check(waits, what);
}

bool runs_on(const std::string& architecture, const DeviceInfo& device) {
  int capability = 0;
  const char* const end = architecture.data() + architecture.size();
  if (!architecture.starts_with("sm_")) return false;
  const auto [rest, error] = std::from_chars(architecture.data() + 3, end, capability);
  if (error != std::errc() || capability / 10 != device.major) return false;
  const bool exact = rest != end && *rest == 'a';
  return exact ? capability % 10 == device.minor : capability % 10 <= device.minor;
}

ContextGuard::ContextGuard(const Driver& driver, int device) : driver_(driver) {
  CudaContext context = nullptr;
  driver.check(driver.cuCtxGetCurrent(&context), "the current context is unknown");
  if (context != nullptr && current_device(driver) == device) return;
  driver.check(driver.cuCtxPushCurrent_v2(primary_context(driver, device)),
               fmt::format("GPU {} cannot be used", device));
  pushed_ = true;
}

ContextGuard::~ContextGuard() {
  CudaContext popped = nullptr;
  if (pushed_) driver_.cuCtxPopCurrent_v2(&popped);
}

std::uint64_t ContextGuard::id() const {
  unsigned long long id = 0;
  driver_.check(driver_.cuCtxGetId(nullptr, &id), "the current context has no identity");
  return id;
}

// Where the driver refuses, what follows is refused, too, and says why.
BesideCaptures::BesideCaptures(const Driver& driver)
    : driver_(driver), mode_(capture_mode_relaxed) {
  (void)driver_.cuThreadExchangeStreamCaptureMode(&mode_);
}

BesideCaptures::~BesideCaptures() { (void)driver_.cuThreadExchangeStreamCaptureMode(&mode_); }

}  // namespace flashcore
