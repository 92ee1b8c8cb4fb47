// What a launch tells the driver, on which device and stream, and what it refuses.

#include <cstring>
#include <thread>
#include <vector>

#include <gmock/gmock.h>

#include "dsl/error.h"
#include "runtime/cuda/device.h"
#include "tests/runtime/support/expectations.h"
#include "tests/runtime/support/loaded_kernel.h"
#include "tests/runtime/support/timing.h"

namespace flashcore {
namespace {

using test::fake_cuda;
using test::LoadedKernelTest;
using test::message_of;
using testing::HasSubstr;

TEST_F(LoadedKernelTest, Launches) {
  const auto stream = reinterpret_cast<CudaStream>(0x77);
  kernel.launch(rows(5, 0), factor, stream);
  ASSERT_EQ(fake_cuda().launches.size(), 1U);
  const test::FakeLaunch& launch = fake_cuda().launches[0];
  EXPECT_EQ(launch.function, "scale");
  EXPECT_EQ(launch.blocks, 5U);
  EXPECT_EQ(launch.threads, 64U);
  EXPECT_EQ(launch.shared_bytes, 0U);
  EXPECT_EQ(launch.stream, stream);
  struct {
    std::uint64_t x = 0x1000, y = 0x2000;
    std::int64_t x_stride = 64, y_stride = 64;
    std::int32_t rows = 5;
    float factor = 2;
  } expected;
  EXPECT_EQ(std::memcmp(launch.parameters.data(), &expected, sizeof expected), 0);
}

TEST_F(LoadedKernelTest, ThreadsOnTwoDevicesLaunchTogether) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, device = i % 2] {
      fake_cuda().push_new_context(device);
      for (int launch = 0; launch < 50; ++launch) kernel.launch(rows(device + 1, device), factor);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(fake_cuda().launches.size(), 400U);
  EXPECT_EQ(fake_cuda().calls["cuModuleLoadData"], 8);
  for (const test::FakeLaunch& launch : fake_cuda().launches) {
    EXPECT_EQ(launch.blocks, static_cast<unsigned>(launch.device) + 1);
  }
}

TEST_F(LoadedKernelTest, SwitchesToTheDeviceOfTheTensors) {
  fake_cuda().push_new_context(0);
  kernel.launch(rows(5, 1), factor);
  kernel.launch(rows(5, 0), factor);
  kernel.launch(rows(5, 1), factor);
  std::vector<int> devices;
  for (const test::FakeLaunch& launch : fake_cuda().launches) devices.push_back(launch.device);
  EXPECT_THAT(devices, testing::ElementsAre(1, 0, 1));
  EXPECT_EQ(current_device(Driver::get()), 0);  // and back
  EXPECT_EQ(fake_cuda().calls["cuModuleLoadData"], 2);
}

TEST_F(LoadedKernelTest, NothingToDoTouchesNothing) {
  kernel.launch(rows(0, 0), factor);
  EXPECT_TRUE(fake_cuda().launches.empty());
  EXPECT_EQ(fake_cuda().calls["cuModuleLoadData"], 0);
}

class TileCountersTest : public LoadedKernelTest {
 public:
  TileCountersTest() { fake_cuda().parameter_bytes = 48; }
  int counter_of(std::uintptr_t stream) {
    drawing.launch(rows(5, 0), factor, reinterpret_cast<CudaStream>(stream));
    std::int32_t counter = -1;
    std::memcpy(&counter, fake_cuda().launches.back().parameters.data() + 40, sizeof counter);
    return counter;
  }
  LoadedKernel drawing{compiled(test::drawing_kernel())};
};

// A counter serves one launch at a time, and launches of one stream follow each other.
TEST_F(TileCountersTest, EveryStreamHasItsOwn) {
  EXPECT_EQ(counter_of(0x70), 1);
  EXPECT_EQ(counter_of(0x80), 2);
  EXPECT_EQ(counter_of(0x70), 1);
  {
    LoadedKernel equal(compiled(test::drawing_kernel()));  // the counters are the code's
    equal.launch(rows(5, 0), factor, reinterpret_cast<CudaStream>(0xa0));
  }
  fake_cuda().streams_before = 1000;  // 0x80 was destroyed, with a launch that still runs
  EXPECT_EQ(counter_of(0x80), 4);
  fake_cuda().failures["cuStreamGetId"] = 1;
  EXPECT_EQ(counter_of(0x80), 0);
}

// It has one number as long as its context lives, and no graph captures it.
TEST_F(TileCountersTest, TheDefaultStreamIsAskedOnce) {
  EXPECT_EQ(counter_of(0x70), 1);
  const int asked = fake_cuda().calls["cuStreamIsCapturing"];
  for (int i = 0; i < 3; ++i) EXPECT_EQ(counter_of(0), 2);
  EXPECT_EQ(fake_cuda().calls["cuStreamGetId"], 2);
  EXPECT_EQ(fake_cuda().calls["cuStreamIsCapturing"], asked);
  fake_cuda().push_new_context(0);
  EXPECT_EQ(counter_of(0), 1);
}

TEST_F(TileCountersTest, LaunchesBeyondTheLastGetNone) {
  fake_cuda().tile_counters = 3;
  EXPECT_EQ(counter_of(0x70), 1);
  EXPECT_EQ(counter_of(0x80), 2);
  EXPECT_EQ(counter_of(0x90), 3);
  EXPECT_EQ(counter_of(0xa0), 0);
  EXPECT_EQ(counter_of(0x80), 2);
  fake_cuda().capture_status = 1;
  EXPECT_EQ(counter_of(0x80), 0);
}

TEST_F(TileCountersTest, StoredKernelsWithoutThemGetNone) {
  fake_cuda().failures["cuModuleGetGlobal_v2"] = 500;
  EXPECT_EQ(counter_of(0x70), 0);
}

// Launches in a graph may run beside each other, and beside those of any stream.
TEST_F(TileCountersTest, EveryCapturedLaunchHasItsOwnUntilItsGraphIsGone) {
  EXPECT_EQ(counter_of(0x70), 1);
  fake_cuda().capture_status = 1;
  EXPECT_EQ(counter_of(0x70), 2);
  EXPECT_EQ(counter_of(0x70), 3);
  EXPECT_EQ(fake_cuda().held_by_graphs.size(), 2);
  fake_cuda().capture_status = 0;
  EXPECT_EQ(counter_of(0x70), 1);
  EXPECT_EQ(counter_of(0x80), 4);
  fake_cuda().destroy_graphs();
  EXPECT_EQ(counter_of(0x90), 3);  // what was given back last
  fake_cuda().capture_status = 1;
  EXPECT_EQ(counter_of(0x70), 2);
  EXPECT_EQ(counter_of(0x70), 5);
}

TEST_F(TileCountersTest, AGraphThatCannotHoldOneGetsNone) {
  drawing.prepare(0);
  fake_cuda().capture_status = 1;
  for (const char* function :
       {"cuStreamGetCaptureInfo_v2", "cuUserObjectCreate", "cuGraphRetainUserObject"}) {
    fake_cuda().failures[function] = 1;
    EXPECT_EQ(counter_of(0x70), 0) << function;
    fake_cuda().failures.clear();
  }
  fake_cuda().capture_status = 2;  // an error ended the capture
  EXPECT_EQ(counter_of(0x70), 0);
  fake_cuda().capture_status = 1;
  EXPECT_EQ(counter_of(0x70), 1);  // none was lost
}

TEST_F(TileCountersTest, AGraphMayOutliveTheCode) {
  fake_cuda().capture_status = 1;
  {
    TileCounters counters(1);
    EXPECT_EQ(counters.of_captured_launch(Driver::get(), reinterpret_cast<CudaStream>(0x70)), 1);
  }
  fake_cuda().destroy_graphs();
}

TEST_F(LoadedKernelTest, RefusesCpuMemoryAndUnknownDevices) {
  EXPECT_THAT(message_of<Error>([&] { kernel.launch(rows(5, cpu_device), factor); }),
              HasSubstr("run the kernel in the emulator"));
  kernel.launch(rows(5, 0), factor);
  EXPECT_THROW(kernel.launch(rows(5, cpu_device), factor), DeviceError);  // loaded or not
  fake_cuda().clear_contexts();
  EXPECT_THAT(message_of<DeviceError>([&] { kernel.prepare(7); }), HasSubstr("GPU 7"));
}

TEST_F(LoadedKernelTest, TellsWhatTheDriverSays) {
  kernel.prepare(0);
  fake_cuda().failures["cuLaunchKernel"] = 701;
  const std::string launch = message_of<Error>([&] { kernel.launch(rows(5, 0), factor); });
  EXPECT_THAT(launch,
              HasSubstr("scale cannot be launched with 5 blocks of 64 threads and 0 bytes"));
  EXPECT_THAT(launch, HasSubstr("CUDA_ERROR_FAKE (701): as the test asked"));
  EXPECT_THAT(launch, HasSubstr("fewer threads, registers or bytes of shared memory"));

  fake_cuda().failures["cuModuleLoadData"] = 209;
  LoadedKernel other(compiled(test::scale_kernel(), "sm_80", "other"));
  EXPECT_THAT(
      message_of<DeviceError>([&] { other.prepare(0); }),
      testing::AllOf(HasSubstr("cannot be loaded on GPU 0 (Fake GPU, sm_80) by a driver for "
                               "CUDA 13.0"),
                     HasSubstr("with an NVRTC of the driver's CUDA version or older")));
  fake_cuda().failures.clear();
  EXPECT_NO_THROW(other.prepare(0));  // a failure is not remembered
}

TEST_F(LoadedKernelTest, IsFast) {
  fake_cuda().push_new_context(0);
  LoadedKernel attention(compiled(test::attention_like_kernel()));
  const auto at = [](std::uintptr_t address) { return reinterpret_cast<void*>(address); };
  const std::array<TensorView, 4> tensors{
      TensorView::dense(at(0x10000), DType::bf16, {2, 8, 100, 64}, 0),
      TensorView::dense(at(0x20000), DType::bf16, {2, 8, 300, 64}, 0),
      TensorView::dense(at(0x30000), DType::bf16, {2, 8, 100, 64}, 0),
      TensorView::dense(at(0x40000), DType::f32, {2, 8, 100}, 0)};
  attention.prepare(0);
  fake_cuda().recording = false;
  const double time = test::fastest_nanoseconds([&] { attention.launch(tensors, factor); });
  fmt::print("launch beside the driver's own work: {:.0f} ns\n", time);
  EXPECT_LT(time, test::limit_in_release(1000));
}

class EarlyLaunchTest : public test::LoadedKernelTest {
 protected:
  test::FakeLaunch launch_of(int shared_bytes, int cluster, int row_count = 5) {
    KernelSource source = test::scale_kernel();
    source.waits_for_kernels = true;
    source.shared_bytes = shared_bytes;
    source.cluster = cluster;
    fake_cuda().launches.clear();
    LoadedKernel(compiled(source, "sm_90", fmt::format("{} {}", shared_bytes, cluster)))
        .launch(rows(row_count, test::hopper), factor);
    return fake_cuda().launches.at(0);
  }
};

TEST_F(EarlyLaunchTest, BlocksThatFitOnceAskForWhatTheyUse) {
  EXPECT_TRUE(launch_of(120000, 1).early);
  EXPECT_EQ(launch_of(120000, 1).shared_bytes, 120000U);
}

// A multiprocessor has 228 KiB, of which CUDA reserves 1 KiB in each block: two blocks of 113 KiB fit, and two
// of half a KiB more do not.
TEST_F(EarlyLaunchTest, SmallerBlocksAskForTheLeastOfWhichOneFits) {
  EXPECT_EQ(launch_of(113 * 1024, 1).shared_bytes, 114U * 1024);
  EXPECT_EQ(launch_of(50000, 1).shared_bytes, 114U * 1024);
  EXPECT_EQ(launch_of(113 * 1024 + 512, 1).shared_bytes, 113U * 1024 + 512);
}

// 25 clusters of four blocks run at once with one block on a multiprocessor, so they reach 100 of the 108 multiprocessors.
TEST_F(EarlyLaunchTest, ClustersAreSpreadOverTheMultiprocessorsThatTheyReach) {
  fake_cuda().clusters_at_once = 25;
  const test::FakeLaunch one_on_each = launch_of(50000, 4, 25);
  EXPECT_EQ(fake_cuda().shared_bytes_of_clusters, 114U * 1024);
  EXPECT_EQ(one_on_each.blocks, 100U);
  EXPECT_TRUE(one_on_each.early);
  EXPECT_EQ(one_on_each.shared_bytes, 114U * 1024);
  const test::FakeLaunch two_on_each = launch_of(50000, 4, 26);
  EXPECT_TRUE(two_on_each.early);
  EXPECT_EQ(two_on_each.shared_bytes, 76U * 1024);
  EXPECT_EQ(launch_of(120000, 4, 26).shared_bytes, 120000U);
}

TEST_F(EarlyLaunchTest, FailsWhereTheDriverDoesNotCountClusters) {
  fake_cuda().failures["cuOccupancyMaxActiveClusters"] = 912;
  EXPECT_THAT(message_of<DeviceError>([&] { launch_of(50000, 4); }),
              HasSubstr("scale cannot be loaded on"));
}

}  // namespace
}  // namespace flashcore
