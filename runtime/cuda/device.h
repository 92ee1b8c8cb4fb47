// GPUs and their contexts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/cuda/driver.h"

namespace flashcore {

struct DeviceInfo {
  int ordinal = 0;
  std::string name;
  int major = 0;  ///< compute capability
  int minor = 0;
  int multiprocessors = 0;
  int shared_per_block = 0;  ///< bytes a block can opt in to
  int l2_bytes = 0;

  [[nodiscard]] std::string architecture() const;  ///< "sm_90"
};

DeviceInfo device_info(const Driver& driver, int ordinal);

/// How many a GPU has; after the first time without asking the driver.
int multiprocessors_of(const Driver& driver, int ordinal);

/// The device of the calling thread's context; GPU 0 for a thread without one.
int current_device(const Driver& driver);

/// The device whose memory this is an address of; that of the calling thread where the driver does
/// not know.
int device_of(const Driver& driver, CudaAddress address);

/// Work that is queued on `second` from now on waits for what is queued on `first`. The calling
/// thread has a context.
void order_streams(const Driver& driver, CudaStream first, CudaStream second);

/// Whether the architecture's code runs on this device: the same major version and no newer minor;
/// exactly this chip for names with an "a".
bool runs_on(const std::string& architecture, const DeviceInfo& device);

/// While it lives, the calling thread has a context on `device`: its own if it is on that device,
/// else the primary one, which the CUDA runtime and every framework use.
class ContextGuard {
 public:
  ContextGuard(const Driver& driver, int device);
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;
  ~ContextGuard();

  /// Never the same for two contexts of a process, even one after the other.
  [[nodiscard]] std::uint64_t id() const;

 private:
  const Driver& driver_;
  bool pushed_ = false;
};

/// While it lives, the calling thread may allocate memory and load code although another thread
/// captures a stream, whose graph is none the worse for it.
class BesideCaptures {
 public:
  explicit BesideCaptures(const Driver& driver);
  BesideCaptures(const BesideCaptures&) = delete;
  BesideCaptures& operator=(const BesideCaptures&) = delete;
  ~BesideCaptures();

 private:
  const Driver& driver_;
  int mode_;
};

}  // namespace flashcore
