// How long launches take on the GPU, for the choice between schedules.
#pragma once

#include <span>
#include <vector>

#include "runtime/cuda/memory.h"
#include "runtime/kernel.h"

namespace flashcore {

struct TimedLaunch {
  LoadedKernel* kernel = nullptr;
  std::span<const TensorView> tensors;
  std::span<const ScalarValue> scalars;
};

/// Holds what is needed besides the kernels. For one thread at a time.
class LaunchTimer {
 public:
  /// Allocates four times the L2 cache.
  explicit LaunchTimer(int device);
  LaunchTimer(const LaunchTimer&) = delete;
  LaunchTimer& operator=(const LaunchTimer&) = delete;
  ~LaunchTimer();

  /// The median time of each launch over `rounds`, each on a cold L2 cache. A GPU changes its clock
  /// with heat and power, so only what one call returns compares: in every round each launch runs
  /// once, in every second one in the opposite order. Two rounds more, the first, do not count.
  /// Waits for the GPU; the stream must not be captured. Throws what a launch throws.
  std::vector<double> median_microseconds(std::span<const TimedLaunch> launches, int rounds = 20,
                                          CudaStream stream = nullptr);

 private:
  CudaEvent event(std::size_t index);

  const Driver& driver_;
  int device_ = 0;
  DeviceMemory flush_;
  std::vector<CudaEvent> events_;
};

}  // namespace flashcore
