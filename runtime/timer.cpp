#include "runtime/timer.h"

#include <algorithm>

#include "dsl/error.h"
#include "runtime/cuda/device.h"

namespace flashcore {
namespace {

constexpr int warm_up_rounds = 2;
constexpr std::size_t least_flush = std::size_t{64} << 20;

double median(std::vector<float>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::size_t flush_bytes(const Driver& driver, int device) {
  return std::max(4 * static_cast<std::size_t>(device_info(driver, device).l2_bytes), least_flush);
}

}  // namespace

LaunchTimer::LaunchTimer(int device)
    : driver_(Driver::get()), device_(device), flush_([&] {
        const ContextGuard context(driver_, device);
        return DeviceMemory(flush_bytes(driver_, device));
      }()) {}

LaunchTimer::~LaunchTimer() {
  const ContextGuard context(driver_, device_);
  for (CudaEvent event : events_) driver_.cuEventDestroy_v2(event);
}

CudaEvent LaunchTimer::event(std::size_t index) {
  constexpr unsigned with_timing = 0;
  while (events_.size() <= index) {
    CudaEvent created = nullptr;
    driver_.check(driver_.cuEventCreate(&created, with_timing), "launches cannot be timed");
    events_.push_back(created);
  }
  return events_[index];
}

std::vector<double> LaunchTimer::median_microseconds(std::span<const TimedLaunch> launches,
                                                     int rounds, CudaStream stream) {
  if (rounds < 1) throw InternalError(fmt::format("launches are timed in {} rounds", rounds));
  const ContextGuard context(driver_, device_);
  const auto check = [&](int result) { driver_.check(result, "launches cannot be timed"); };
  for (const TimedLaunch& launch : launches) launch.kernel->prepare(device_);

  const std::size_t count = launches.size();
  const auto all = static_cast<std::size_t>(rounds + warm_up_rounds);
  // While the GPU clears its cache the host gets ahead, so that the launch stands ready behind its
  // event.
  for (std::size_t round = 0; round < all; ++round) {
    for (std::size_t turn = 0; turn < count; ++turn) {
      const std::size_t which = round % 2 == 0 ? turn : count - 1 - turn;
      const std::size_t sample = 2 * (round * count + which);
      const CudaEvent before = event(sample), after = event(sample + 1);
      check(driver_.cuMemsetD8Async(flush_.address(), 0, flush_.bytes(), stream));
      check(driver_.cuEventRecord(before, stream));
      launches[which].kernel->launch(launches[which].tensors, launches[which].scalars, stream);
      check(driver_.cuEventRecord(after, stream));
    }
  }
  std::vector<double> medians;
  for (std::size_t which = 0; which < count; ++which) {
    std::vector<float> times;
    for (std::size_t round = warm_up_rounds; round < all; ++round) {
      const std::size_t sample = 2 * (round * count + which);
      float milliseconds = 0;
      check(driver_.cuEventSynchronize(event(sample + 1)));
      check(driver_.cuEventElapsedTime(&milliseconds, event(sample), event(sample + 1)));
      times.push_back(milliseconds);
    }
    medians.push_back(1000 * median(times));
  }
  return medians;
}

}  // namespace flashcore
