// Devices and their memory: which code runs where, which device an address is on, copies, order.

#include "runtime/cuda/device.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <gmock/gmock.h>

#include "dsl/error.h"
#include "runtime/cuda/memory.h"
#include "tests/runtime/support/expectations.h"
#include "tests/runtime/support/loaded_kernel.h"

namespace flashcore {
namespace {

using test::fake_cuda;
using test::LoadedKernelTest;
using test::message_of;
using testing::HasSubstr;

TEST(RunsOn, FollowsTheRulesOfBinaryCompatibility) {
  const DeviceInfo ada{.major = 8, .minor = 9}, hopper{.major = 9, .minor = 0};
  EXPECT_TRUE(runs_on("sm_80", ada));
  EXPECT_TRUE(runs_on("sm_89", ada));
  EXPECT_FALSE(runs_on("sm_89", DeviceInfo{.major = 8, .minor = 6}));
  EXPECT_FALSE(runs_on("sm_80", hopper));
  EXPECT_TRUE(runs_on("sm_90a", hopper));
  EXPECT_FALSE(runs_on("sm_100a", DeviceInfo{.major = 10, .minor = 3}));
  EXPECT_TRUE(runs_on("sm_100f", DeviceInfo{.major = 10, .minor = 3}));
  EXPECT_TRUE(runs_on("sm_120", DeviceInfo{.major = 12, .minor = 1}));
  EXPECT_FALSE(runs_on("fastest", hopper));
}

TEST_F(LoadedKernelTest, AnAddressTellsItsDevice) {
  fake_cuda().device_of_pointers = 1;
  EXPECT_EQ(device_of(Driver::get(), 0x1000), 1);
  fake_cuda().failures["cuPointerGetAttribute"] = 1;
  EXPECT_EQ(device_of(Driver::get(), 0x1000), current_device(Driver::get()));
}

TEST_F(LoadedKernelTest, StreamsWaitForAnother) {
  const auto stream = [](std::uintptr_t handle) { return reinterpret_cast<CudaStream>(handle); };
  fake_cuda().waiting_streams.clear();
  order_streams(Driver::get(), stream(7), stream(7));
  EXPECT_THAT(fake_cuda().waiting_streams, testing::IsEmpty());
  order_streams(Driver::get(), stream(7), stream(9));
  EXPECT_THAT(fake_cuda().waiting_streams, testing::ElementsAre(stream(9)));
}

TEST_F(LoadedKernelTest, DeviceMemoryGoesThereAndBack) {
  DeviceMemory memory(8);
  const std::array<std::int32_t, 2> sent{3, 4};
  std::array<std::int32_t, 2> received{};
  memory.upload(std::as_bytes(std::span(sent)));
  memory.download(std::as_writable_bytes(std::span(received)));
  EXPECT_EQ(received, sent);
  std::array<std::byte, 9> large{};
  EXPECT_THAT(message_of<DeviceError>([&] { memory.upload(large); }),
              HasSubstr("upload of 9 bytes\n  why: the allocation has 8"));
}

}  // namespace
}  // namespace flashcore
