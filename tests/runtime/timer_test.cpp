#include "runtime/timer.h"

#include <gmock/gmock.h>

#include "dsl/error.h"
#include "tests/runtime/support/fake_cuda.h"
#include "tests/runtime/support/kernels.h"

namespace flashcore {
namespace {

using test::fake_cuda;

class LaunchTimerTest : public testing::Test {
 protected:
  LaunchTimerTest() {
    fake_cuda().clear_contexts();
    fake_cuda().failures.clear();
    fake_cuda().calls.clear();
    fake_cuda().launches.clear();
    fake_cuda().recording = true;
    fake_cuda().capture_status = 0;
    fake_cuda().launch_milliseconds = [this](const std::string& function) {
      const int call = calls++;
      return (function == "slow" ? 0.5 : 0.25) + (call < 4 ? 10 : 0) + (call == 9 ? 50 : 0);
    };
  }
  ~LaunchTimerTest() override { fake_cuda().launch_milliseconds = nullptr; }

  static std::shared_ptr<const CompiledKernel> kernel(const char* name) {
    KernelSource source = test::scale_kernel();
    source.name = source.entry = name;
    return CompiledKernel::from_cubin(source, "sm_80",
                                      {.bytes = "code", .resources = {.registers = 32}});
  }

  int calls = 0;
  LoadedKernel slow{kernel("slow")}, quick{kernel("quick")};
  std::array<TensorView, 2> tensors{
      TensorView::dense(reinterpret_cast<void*>(0x1000), DType::f32, {5, 64}, 1),
      TensorView::dense(reinterpret_cast<void*>(0x2000), DType::f32, {5, 64}, 1)};
  std::array<ScalarValue, 1> factor{2.F};
};

TEST_F(LaunchTimerTest, MediansOfLaunchesThatTakeTurns) {
  {
    LaunchTimer timer(1);
    const std::array launches{TimedLaunch{&slow, tensors, factor},
                              TimedLaunch{&quick, tensors, factor}};
    const std::vector<double> times = timer.median_microseconds(launches, 5);
    ASSERT_EQ(times.size(), 2U);
    EXPECT_NEAR(times[0], 500, 0.01);  // neither the cold start nor the hiccup counts
    EXPECT_NEAR(times[1], 250, 0.01);
    std::string order;
    for (const test::FakeLaunch& launch : fake_cuda().launches) {
      order += launch.function[0];
      EXPECT_EQ(launch.device, 1);
    }
    EXPECT_EQ(order, "sqqssqqssqqssq");
    EXPECT_EQ(fake_cuda().calls["cuMemsetD8Async"], 14);
    EXPECT_EQ(fake_cuda().bytes_set, 160U << 20);
    (void)timer.median_microseconds(launches, 5);
    EXPECT_EQ(fake_cuda().calls["cuEventCreate"], 28);  // once
  }
  EXPECT_EQ(fake_cuda().calls["cuEventDestroy_v2"], 28);
  EXPECT_EQ(fake_cuda().calls["cuMemAlloc_v2"], fake_cuda().calls["cuMemFree_v2"]);
}

TEST_F(LaunchTimerTest, FailsAsTheLaunchDoes) {
  LaunchTimer timer(1);
  const std::array launches{TimedLaunch{&slow, tensors, factor}};
  EXPECT_THROW((void)timer.median_microseconds(launches, 0), InternalError);
  fake_cuda().failures["cuLaunchKernel"] = 701;
  EXPECT_THROW((void)timer.median_microseconds(launches), DeviceError);
}

}  // namespace
}  // namespace flashcore
