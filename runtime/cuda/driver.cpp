#include "runtime/cuda/driver.h"

#include <atomic>
#include <mutex>
#include <type_traits>

#include <fmt/format.h>

#include "dsl/error.h"
#include "runtime/cuda/shared_library.h"
#include "runtime/environment.h"
#include "runtime/log.h"
#include "runtime/no_fork.h"

namespace flashcore {
namespace {

// Contexts have had an identity that is never used twice since then.
constexpr int oldest_version = 12000;

constexpr const char* what_works =
    "compiling for any architecture and the emulator (arrays in CPU memory) work without a GPU";

[[noreturn]] void fail_to_load(std::string why, const char* fix) {
  throw DeviceError({.what = "kernels cannot run on a GPU here",
                     .why = std::move(why),
                     .fix = fmt::format("{}; {}", fix, what_works),
                     .where = {}});
}

std::string library_name() {
  return value_of(EnvironmentVariable::libcuda).value_or("libcuda.so.1");
}

}  // namespace

const Driver& Driver::get() {
  static std::mutex mutex;
  static std::atomic<const Driver*> instance = nullptr;
  if (const Driver* const opened = instance.load(std::memory_order_acquire)) return *opened;
  const HookDeferral messages_after_the_lock;
  const NoFork whole;
  const std::lock_guard lock(mutex);
  if (instance == nullptr) instance = new Driver(library_name());
  return *instance;
}

Driver::Driver(const std::string& library) {
  const SharedLibrary opened = SharedLibrary::open(library);
  if (!opened.is_open()) {
    fail_to_load(fmt::format("the driver library was not found: {}", opened.failure()),
                 "install NVIDIA's driver (in a container: start it with the NVIDIA runtime, as in "
                 "docker run --gpus all), or set FLASHCORE_LIBCUDA to the file");
  }
  const auto find = [&](const char* symbol, auto& function) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(opened.symbol(symbol));
    if (function != nullptr) return;
    fail_to_load(fmt::format("{} has no function {}", library, symbol), "install a newer driver");
  };
#define FLASHCORE_DRIVER(name, parameters) find(#name, name);
#include "runtime/cuda/driver_functions.def"
#undef FLASHCORE_DRIVER

  int devices = 0;
  const auto require = [&](int result) {
    if (result == 0) return;
    const std::string hint = hint_of_result(result);
    fail_to_load(fmt::format("the driver does not start: {}", describe(result)),
                 hint.empty() ? "see what nvidia-smi says" : hint.c_str());
  };
  require(cuDriverGetVersion(&version_));
  if (version_ < oldest_version) {
    fail_to_load(fmt::format("the driver supports CUDA {}.{}, 12.0 is needed", version_ / 1000,
                             version_ % 1000 / 10),
                 "install driver 525 or newer");
  }
  require(cuInit(0));
  require(cuDeviceGetCount(&devices));
  if (devices == 0) fail_to_load("the driver sees no GPU", "check CUDA_VISIBLE_DEVICES");
  log_message(LogLevel::info, "driver for CUDA {}.{}, {} GPU(s)", version_ / 1000,
              version_ % 1000 / 10, devices);
}

std::string Driver::describe(int result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (cuGetErrorName(result, &name) != 0 || name == nullptr) name = "an unknown error";
  if (cuGetErrorString(result, &text) != 0 || text == nullptr) text = "no description";
  return fmt::format("{} ({}): {}", name, result, text);
}

void Driver::fail(int result, const std::string& what) const {
  throw DeviceError(
      {.what = what, .why = describe(result), .fix = hint_of_result(result), .where = {}});
}

std::string hint_of_result(int result) {
  switch (result) {
    case 2:  // CUDA_ERROR_OUT_OF_MEMORY
      return "free memory of the GPU: another process or a caching allocator may hold it";
    case 3:  // CUDA_ERROR_NOT_INITIALIZED
      return "the driver does not survive fork(): start workers with \"spawn\", or before the "
             "first use "
             "of a GPU";
    case 34:  // CUDA_ERROR_STUB_LIBRARY
      return "this is the toolkit's stub of libcuda, for linking only: take its folder "
             "(lib64/stubs) "
             "out of LD_LIBRARY_PATH";
    case 100:  // CUDA_ERROR_NO_DEVICE
      return "check CUDA_VISIBLE_DEVICES, and that the container was given a GPU";
    case 200:  // CUDA_ERROR_INVALID_IMAGE
    case 209:  // CUDA_ERROR_NO_BINARY_FOR_GPU
      return "compile for the architecture of this GPU, with an NVRTC of the driver's CUDA version "
             "or "
             "older";
    case 400:  // CUDA_ERROR_INVALID_HANDLE
      return "pass a stream of the device that holds the tensors";
    case 700:  // CUDA_ERROR_ILLEGAL_ADDRESS
    case 716:  // CUDA_ERROR_MISALIGNED_ADDRESS
    case 719:  // CUDA_ERROR_LAUNCH_FAILED
      return "an earlier kernel of this process may be the cause; run compute-sanitizer, or the "
             "same "
             "arrays in the emulator, which names the line";
    case 701:  // CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
      return "a schedule with fewer threads, registers or bytes of shared memory a block";
    case 803:  // CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
      return "restart the machine: the kernel module and the driver library differ in version";
    case 900:  // CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
    case 901:  // CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
    case 906:  // CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
      return "call prepare() before the capture of a graph begins";
    default:
      return "";
  }
}

bool gpu_is_available(std::string* why) {
  try {
    Driver::get();
    return true;
  } catch (const DeviceError& error) {
    if (why != nullptr) *why = error.what();
    return false;
  }
}

}  // namespace flashcore
