// The CUDA driver, opened when the first launch needs it. Its few types are declared here, so that
// FlashCore builds without CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace flashcore {

using CudaContext = struct CudaContextTag*;
using CudaModule = struct CudaModuleTag*;
using CudaFunction = struct CudaFunctionTag*;
using CudaStream = struct CudaStreamTag*;  ///< null: the default stream
using CudaEvent = struct CudaEventTag*;
using CudaGraph = struct CudaGraphTag*;
using CudaMemoryPool = struct CudaMemoryPoolTag*;
using CudaUserObject = struct CudaUserObjectTag*;
using CudaAddress = unsigned long long;

/// One of the driver's attributes of a launch, and its value.
struct LaunchAttribute {
  /// The kernel may start beside the end of the one in front of it on the stream.
  static constexpr int programmatic_stream_serialization = 6;

  int id = 0;
  int padding = 0;
  union {
    int allowed;
    char bytes[64];
  } value{};
};

/// What cuLaunchKernelEx takes.
struct LaunchConfiguration {
  unsigned grid[3], block[3];
  unsigned shared_bytes;
  CudaStream stream;
  const LaunchAttribute* attributes;
  unsigned attribute_count;
};

class Driver {
 public:
  /// The driver, with at least one GPU behind it. Throws DeviceError that tells what is missing and
  /// what works without; asked again, it looks again.
  static const Driver& get();

  /// Opens this file or name alone.
  explicit Driver(const std::string& library);

  /// 12040 for CUDA 12.4: the newest it supports.
  [[nodiscard]] int version() const { return version_; }
  /// Whether a launch may start early (programmatic_stream_serialization). Drivers before CUDA 12.3 capture no such
  /// launch in a graph.
  [[nodiscard]] bool can_start_early(bool captured) const { return !captured || version_ >= 12030; }

  /// Throws DeviceError unless `result` is success: `what` failed, because of the driver's reason.
  void check(int result, const std::string& what) const {
    if (result != 0) [[unlikely]]
      fail(result, what);
  }
  [[noreturn]] void fail(int result, const std::string& what) const;

  /// "CUDA_ERROR_OUT_OF_MEMORY (2): out of memory".
  [[nodiscard]] std::string describe(int result) const;

// NOLINTNEXTLINE(bugprone-macro-parentheses)
#define FLASHCORE_DRIVER(name, parameters) int(*name) parameters = nullptr;
#include "runtime/cuda/driver_functions.def"
#undef FLASHCORE_DRIVER

 private:
  int version_ = 0;
};

/// What may have led to a result of the driver and what to do, or an empty text.
std::string hint_of_result(int result);

/// Whether launches can work here; else `why` (if given) tells what is missing.
bool gpu_is_available(std::string* why = nullptr);

}  // namespace flashcore
