// Tensor maps: what the driver is told of tensors, and how long a thread keeps it.

#include <cstring>
#include <thread>
#include <utility>

#include <gmock/gmock.h>

#include "dsl/error.h"
#include "tests/runtime/support/expectations.h"
#include "tests/runtime/support/loaded_kernel.h"
#include "tests/runtime/support/timing.h"

namespace flashcore {
namespace {

using test::fake_cuda;
using test::LoadedKernelTest;
using test::message_of;
using testing::HasSubstr;

class MappedKernelTest : public LoadedKernelTest {
 protected:
  MappedKernelTest() { fake_cuda().parameter_bytes = 448; }
  static std::array<TensorView, 3> tensors(std::int64_t queries, std::int64_t keys,
                                           std::uintptr_t address = 0x10000) {
    const auto at = [&](std::uintptr_t offset) {
      return reinterpret_cast<void*>(address + offset);
    };
    return {TensorView::dense(at(0), DType::bf16, {2, 8, queries, 128}, test::hopper),
            TensorView::dense(at(0x10000), DType::bf16, {2, 8, keys, 128}, test::hopper),
            TensorView::dense(at(0x20000), DType::bf16, {2, 8, queries, 128}, test::hopper)};
  }
  static test::FakeTensorMap map(int index) {
    test::FakeTensorMap map;
    std::memcpy(&map, fake_cuda().launches.back().parameters.data() + 128 * index, sizeof map);
    return map;
  }
  static int encoded() { return std::exchange(fake_cuda().calls["cuTensorMapEncodeTiled"], 0); }

  LoadedKernel mapped{compiled(test::mapped_kernel(), "sm_90a")};
};

TEST_F(MappedKernelTest, TellsTheDriverOfTensors) {
  auto views = tensors(100, 300);
  views[1].strides = {8 * 300 * 128, 128, 8 * 128, 1};  // k stored as [batch, seq, heads, dim]
  mapped.launch(views, {});
  const test::FakeTensorMap k = map(1);
  EXPECT_EQ(k.address, views[1].data);
  EXPECT_EQ(k.rank, 4);
  EXPECT_EQ(k.type, 9);  // CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
  EXPECT_THAT(k.extents, testing::ElementsAre(128, 300, 8, 2, 0));
  EXPECT_THAT(k.strides, testing::ElementsAre(2 * 8 * 128, 2 * 128, 2 * 8 * 300 * 128, 0));
  EXPECT_THAT(k.box, testing::ElementsAre(64, 96, 1, 1, 0));
  EXPECT_EQ(k.interleave, 0);
  EXPECT_EQ(k.swizzle, 3);    // 128 bytes
  EXPECT_EQ(k.promotion, 3);  // 256 bytes
  EXPECT_EQ(k.fill, 0);       // zeros
}

TEST_F(MappedKernelTest, NarrowBoxesHaveNarrowSwizzles) {
  KernelSource source = test::mapped_kernel();
  source.tensors[0].dtype = DType::f16;
  source.tensor_maps[0].width = 16;
  source.tensor_maps[1].width = 32;
  source.tensor_maps[2] = {.tensor = 2, .row_dim = 0, .rows = 1, .width = 64};
  LoadedKernel narrow(compiled(source, "sm_90a"));
  auto views = tensors(100, 300);
  views[0].dtype = DType::f16;
  narrow.launch(views, {});
  EXPECT_EQ(map(0).type, 6);  // CU_TENSOR_MAP_DATA_TYPE_FLOAT16
  EXPECT_EQ(map(0).swizzle, 1);
  EXPECT_EQ(map(1).swizzle, 2);
  EXPECT_EQ(map(2).swizzle, 0);  // a vector
  EXPECT_EQ(map(1).box[0], 32);
}

TEST_F(MappedKernelTest, AThreadKeepsTheLastMaps) {
  const auto in_a_new_thread = [](const auto& work) { std::thread(work).join(); };
  (void)encoded();
  in_a_new_thread([&] {
    mapped.launch(tensors(90, 310), {});
    EXPECT_EQ(encoded(), 3);
    for (int i = 0; i < 10; ++i) {
      mapped.launch(tensors(90, 310), {});
      mapped.launch(tensors(90, 311), {});
      mapped.launch(tensors(90, 312), {});
    }
    EXPECT_EQ(encoded(), 2);  // of k
    EXPECT_EQ(map(1).extents[1], 312U);
    mapped.launch(tensors(90, 311), {});
    EXPECT_EQ(map(1).extents[1], 311U);
    for (std::uintptr_t other = 1; other < 100; ++other)
      mapped.launch(tensors(90, 400 + other, other << 20), {});  // more than are kept
    mapped.launch(tensors(90, 311), {});
    EXPECT_EQ(map(0).address, reinterpret_cast<void*>(0x10000));
    EXPECT_GT(encoded(), 250);
    fake_cuda().push_new_context(test::hopper);
    mapped.launch(tensors(90, 311), {});  // loads
    mapped.launch(tensors(90, 311), {});
    (void)encoded();
    for (std::uintptr_t other = 1; other < 100; ++other)
      mapped.launch(tensors(90, 311, other << 20), {});
    EXPECT_EQ(map(2).address, reinterpret_cast<void*>((std::uintptr_t{99} << 20) + 0x20000));
    EXPECT_EQ(encoded(), 0);  // another address makes no other map
  });
  in_a_new_thread([&] { mapped.launch(tensors(90, 311), {}); });
  EXPECT_EQ(encoded(), 3);
}

TEST_F(MappedKernelTest, TensorsThatDifferInTheirAddressesShareWhatIsEncoded) {
  KernelSource source = test::mapped_kernel();
  for (TensorMapArgument& map : source.tensor_maps) map.rows = 64;
  LoadedKernel alike(compiled(source, "sm_90a"));
  const auto launch = [&](std::int64_t queries, std::int64_t keys) {
    (void)encoded();
    alike.launch(tensors(queries, keys, 0x5550000), {});
    EXPECT_EQ(map(0).address, reinterpret_cast<void*>(0x5550000));
    EXPECT_EQ(map(1).address, reinterpret_cast<void*>(0x5560000));
    EXPECT_EQ(map(2).address, reinterpret_cast<void*>(0x5570000));
    EXPECT_EQ(map(2).extents[1], static_cast<std::uint64_t>(queries));
    return encoded();
  };
  EXPECT_EQ(launch(100, 300), 2);
  EXPECT_EQ(launch(101, 101), 1);
  EXPECT_EQ(launch(101, 300), 0) << "of k the first";
  fake_cuda().failures["cuTensorMapReplaceAddress"] = 1;
  EXPECT_EQ(launch(102, 102), 3);
}

TEST_F(MappedKernelTest, AnEmptyTensorIsOneOfZeros) {
  auto views = tensors(100, 0);
  views[1].data = nullptr;
  mapped.launch(views, {});
  const test::FakeTensorMap k = map(1);
  ASSERT_NE(k.address, nullptr);
  EXPECT_EQ(*static_cast<std::uint16_t*>(k.address), 0);
  EXPECT_THAT(k.extents, testing::ElementsAre(1, 1, 1, 1, 0));
  EXPECT_THAT(k.strides, testing::ElementsAre(16, 16, 16, 0));
  EXPECT_EQ(fake_cuda().calls["cuMemAlloc_v2"], 1);
  mapped.launch(tensors(0, 300), {});
  EXPECT_EQ(fake_cuda().launches.size(), 1U);
}

TEST_F(MappedKernelTest, TellsWhyThereIsNoMap) {
  // Of addresses that no other test has: a thread keeps its maps.
  auto views = tensors(100, 320, 0x7770000);
  views[1].strides[1] = 0;
  fake_cuda().failures["cuTensorMapEncodeTiled"] = 1;
  for (int i = 0; i < 2; ++i) {  // what failed is not kept
    EXPECT_EQ(message_of<Error>([&] { mapped.launch(views, {}); }),
              "mapped: the driver makes no tensor map of q\n"
              "  why: CUDA_ERROR_FAKE (1): as the test asked; its shape is [2, 8, 100, 128], its "
              "strides are [102400, 12800, 128, 1] elements\n"
              "  try: a contiguous copy, or a schedule with copy = cp_async");
  }
  std::swap(views[0].strides, views[1].strides);
  std::swap(views[0].shape[2], views[1].shape[2]);
  views[2].shape[2] = 320;
  EXPECT_THAT(message_of<Error>([&] { mapped.launch(views, {}); }),
              HasSubstr("[327680, 0, 128, 1] elements; dimension 1 has stride 0\n"));
}

TEST_F(MappedKernelTest, PersistentBlocksFillTheGpu) {
  KernelSource source = test::mapped_kernel();
  source.persistent = true;
  source.min_blocks = 2;
  LoadedKernel persistent(compiled(source, "sm_90a"));
  persistent.launch(tensors(100, 300), {});
  EXPECT_EQ(fake_cuda().launches.back().blocks, 16U);
  persistent.launch(tensors(12800, 300), {});  // 1600 tiles, 108 multiprocessors
  EXPECT_EQ(fake_cuda().launches.back().blocks, 216U);
  EXPECT_EQ(fake_cuda().launches.back().rows_of_blocks, 1U);
}

TEST_F(MappedKernelTest, IsFast) {
  fake_cuda().push_new_context(test::hopper);
  mapped.prepare(test::hopper);
  fake_cuda().recording = false;
  const auto one = tensors(100, 300), other = tensors(90, 200);
  const double same = test::fastest_nanoseconds([&] { mapped.launch(one, {}); });
  const double alternating = test::fastest_nanoseconds([&] {
    mapped.launch(one, {});
    mapped.launch(other, {});
  });
  fmt::print("launch with three kept tensor maps: {:.0f} ns, taking turns {:.0f} ns\n", same,
             alternating / 2);
  EXPECT_LT(same, test::limit_in_release(1000));
  EXPECT_LT(alternating, test::limit_in_release(2000));
}

}  // namespace
}  // namespace flashcore
