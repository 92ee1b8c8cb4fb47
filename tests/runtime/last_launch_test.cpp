// A launch like the one before packs addresses alone, and hands over the same bytes as the first
// launch of a thread.

#include <cmath>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include <gmock/gmock.h>

#include "dsl/error.h"
#include "tests/runtime/support/expectations.h"
#include "tests/runtime/support/loaded_kernel.h"

namespace flashcore {
namespace {

using test::fake_cuda;
using test::message_of;
using testing::HasSubstr;

class LastLaunchTest : public test::LoadedKernelTest {
 protected:
  LastLaunchTest() { fake_cuda().parameter_bytes = 448; }

  static std::array<TensorView, 3> tensors(std::int64_t queries, std::int64_t keys,
                                           std::uintptr_t address) {
    const auto at = [&](std::uintptr_t offset) {
      return reinterpret_cast<void*>(address + offset);
    };
    return {TensorView::dense(at(0), DType::bf16, {2, 8, queries, 128}, test::hopper),
            TensorView::dense(at(0x10000), DType::bf16, {2, 8, keys, 128}, test::hopper),
            TensorView::dense(at(0x20000), DType::bf16, {2, 8, queries, 128}, test::hopper)};
  }
  static auto launched() { return fake_cuda().launches.back().parameters; }

  LoadedKernel mapped{compiled(test::mapped_kernel(), "sm_90a")};
};

TEST_F(LastLaunchTest, HandsOverTheBytesOfAFirstLaunch) {
  // More kernels than a thread keeps launches of.
  std::vector<std::unique_ptr<LoadedKernel>> kernels;
  for (int i = 0; i < 10; ++i) {
    kernels.push_back(std::make_unique<LoadedKernel>(compiled(test::mapped_kernel(), "sm_90a")));
  }
  mapped.prepare(test::hopper);
  fake_cuda().push_new_context(test::hopper);
  std::mt19937 random(3);
  const auto draw = [&](int below) { return static_cast<int>(random() % below); };
  for (int i = 0; i < 2000; ++i) {
    auto views = tensors(1 + draw(2), 1 + draw(2), std::uintptr_t{0x100000} * (1 + draw(3)));
    if (draw(4) == 0) views[1].strides[1] = 0;
    if (draw(4) == 0) views[draw(3)].data = reinterpret_cast<void*>(0x7000000);
    LoadedKernel& kernel = *kernels[draw(10)];
    kernel.launch(views, {});
    const auto here = launched();
    std::thread([&] { kernel.launch(views, {}); }).join();
    ASSERT_EQ(here, launched()) << i;
  }
}

TEST_F(LastLaunchTest, ScalarsAreComparedToTheBit) {
  fake_cuda().parameter_bytes = 40;
  const auto factor_of = [&](float given) {
    const std::array<ScalarValue, 1> scalars{given};
    kernel.launch(rows(5, 0), scalars);
    float factor = 0;
    std::memcpy(&factor, launched().data() + 36, sizeof factor);
    return factor;
  };
  kernel.prepare(0);
  EXPECT_EQ(factor_of(2), 2);
  EXPECT_EQ(factor_of(3), 3);
  EXPECT_TRUE(std::signbit(factor_of(-0.F)));
  EXPECT_FALSE(std::signbit(factor_of(0.F)));
  EXPECT_TRUE(std::isnan(factor_of(NAN)));
}

TEST_F(LastLaunchTest, RefusesAddressesAsAFirstLaunchDoes) {
  mapped.prepare(test::hopper);
  for (const std::uintptr_t bad : {0x100008, 0}) {
    mapped.launch(tensors(90, 310, 0x100000), {});
    auto views = tensors(90, 310, 0x100000);
    views[1].data = reinterpret_cast<void*>(bad);
    EXPECT_THAT(message_of<Error>([&] { mapped.launch(views, {}); }),
                HasSubstr(bad == 0 ? "k has no memory" : "k is not aligned"));
    mapped.launch(tensors(90, 310, 0x200000), {});
    EXPECT_EQ(fake_cuda().calls["cuTensorMapReplaceAddress"], 0);
  }
}

TEST_F(LastLaunchTest, WhereTheDriverMovesNoMapItIsMadeAnew) {
  mapped.launch(tensors(91, 310, 0x100000), {});
  fake_cuda().failures["cuTensorMapReplaceAddress"] = 1;
  mapped.launch(tensors(91, 310, 0x300000), {});
  mapped.launch(tensors(91, 310, 0x300000), {});
  std::uintptr_t address = 0;
  std::memcpy(&address, launched().data() + 128, sizeof address);
  EXPECT_EQ(address, 0x310000U);
}

TEST_F(LastLaunchTest, AGraphDrawsFromAnotherCounterThanTheLaunchBefore) {
  LoadedKernel drawing(compiled(test::drawing_kernel()));
  fake_cuda().parameter_bytes = 48;
  drawing.prepare(0);
  const auto counter = [&] {
    drawing.launch(rows(5, 0), factor, reinterpret_cast<CudaStream>(0x70));
    std::int32_t counter = -1;
    std::memcpy(&counter, launched().data() + 40, sizeof counter);
    return counter;
  };
  EXPECT_EQ(counter(), 1);
  fake_cuda().capture_status = 1;
  EXPECT_EQ(counter(), 2);
  fake_cuda().failures["cuStreamGetCaptureInfo_v2"] = 1;
  EXPECT_EQ(counter(), 0);
}

}  // namespace
}  // namespace flashcore
