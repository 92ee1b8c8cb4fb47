#include "runtime/launch.h"

#include <cstring>

#include <gmock/gmock.h>

#include "dsl/error.h"
#include "runtime/emulator/emulated_tensor_map.h"
#include "runtime/launch_errors.h"
#include "tests/runtime/support/expectations.h"
#include "tests/runtime/support/kernels.h"
#include "tests/runtime/support/timing.h"

namespace flashcore {
namespace {

using test::message_of;
using testing::HasSubstr;

constexpr int gpu = 0;

class LaunchPlanTest : public testing::Test {
 protected:
  // q and o [2, 8, 100, 64], k [2, 8, 300, 64], lse [2, 8, 100]
  LaunchPlanTest() {
    const auto at = [](std::uintptr_t address) { return reinterpret_cast<void*>(address); };
    tensors = {TensorView::dense(at(0x10000), DType::bf16, {2, 8, 100, 64}, gpu),
               TensorView::dense(at(0x20000), DType::bf16, {2, 8, 300, 64}, gpu),
               TensorView::dense(at(0x30000), DType::bf16, {2, 8, 100, 64}, gpu),
               TensorView::dense(at(0x40000), DType::f32, {2, 8, 100}, gpu)};
  }

  LaunchPlan::Bound bind() { return plan.bind(tensors, scalars, block); }
  std::string refusal() {
    return message_of<Error>([&] { bind(); });
  }
  template <class Value>
  Value at(int offset) const {
    Value value;
    std::memcpy(&value, block.bytes + offset, sizeof value);
    return value;
  }

  std::vector<TensorView> tensors;
  std::vector<ScalarValue> scalars{0.125F};
  LaunchPlan plan{std::make_shared<const KernelSource>(test::attention_like_kernel())};
  ParameterBlock block;
};

TEST_F(LaunchPlanTest, PacksTheParameters) {
  std::memset(block.bytes, 0xAB, sizeof block.bytes);
  const LaunchPlan::Bound bound = bind();
  EXPECT_EQ(bound.grid.count(), 2 * 8 * 2);  // 100 rows are two tiles of 64
  EXPECT_EQ(bound.device, gpu);

  struct Expected {
    std::uint64_t q = 0x10000, k = 0x20000, o = 0x30000, lse = 0x40000;
    std::int64_t q_strides[3] = {51200, 6400, 64}, k_strides[3] = {153600, 19200, 64};
    std::int64_t o_strides[3] = {51200, 6400, 64}, lse_strides[2] = {800, 100};
    std::int32_t B = 2, H = 8, Sq = 100, Sk = 300;
    float scale = 0.125F;
    std::int32_t padding = 0;
  } expected;
  ASSERT_EQ(static_cast<std::size_t>(plan.source().parameter_bytes), sizeof expected);
  EXPECT_EQ(std::memcmp(block.bytes, &expected, sizeof expected), 0);
}

TEST_F(LaunchPlanTest, AnyStridesButTheLast) {
  // q stored as [batch, seq, heads, dim]
  tensors[0].strides = {51200, 64, 512, 1};
  bind();
  EXPECT_EQ(at<std::int64_t>(32), 51200);
  EXPECT_EQ(at<std::int64_t>(40), 64);
  EXPECT_EQ(at<std::int64_t>(48), 512);
}

TEST_F(LaunchPlanTest, OneElementHasNoStride) {
  for (TensorView& view : tensors) view.shape[0] = 1;
  tensors[0].strides[0] = 7;  // whatever a framework puts there
  tensors[2].strides[0] = 0;
  EXPECT_EQ(bind().grid.count(), 16);
  EXPECT_EQ(at<std::int64_t>(32), 0);
}

TEST_F(LaunchPlanTest, NothingToDo) {
  for (TensorView& view : tensors) view.shape[0] = 0, view.data = nullptr;
  EXPECT_EQ(bind().grid.count(), 0);
}

TEST_F(LaunchPlanTest, NoKeysIsStillALaunch) {
  tensors[1].shape[2] = 0;
  tensors[1].data = nullptr;
  EXPECT_EQ(bind().grid.count(), 32);
  EXPECT_EQ(at<std::int32_t>(132), 0);
}

TEST_F(LaunchPlanTest, RefusesTypes) {
  tensors[1].dtype = DType::f16;
  EXPECT_EQ(refusal(),
            "attention_like: k has the wrong element type\n"
            "  why: it holds f16, the kernel was compiled for bf16\n"
            "  try: convert it, or compile the program for f16");
}

TEST_F(LaunchPlanTest, RefusesRanks) {
  tensors[3] = TensorView::dense(tensors[3].data, DType::f32, {16, 100}, gpu);
  EXPECT_EQ(refusal(),
            "attention_like: lse has the wrong number of dimensions\n"
            "  why: it has 2, the kernel expects 3: [B = 2, H = 8, Sq = 100]\n"
            "  try: reshape it");
}

TEST_F(LaunchPlanTest, RefusesLengthsThatDisagree) {
  tensors[1].shape[1] = 4;
  EXPECT_EQ(refusal(),
            "attention_like: dimension 1 of k is 4\n"
            "  why: it is [2, 4, 300, 64], the kernel expects [B = 2, H = 8, Sk, 64]\n"
            "  try: pass tensors whose shapes agree");
}

TEST_F(LaunchPlanTest, RefusesAnotherConstantLength) {
  tensors[0].shape[3] = 128;
  EXPECT_EQ(refusal(),
            "attention_like: dimension 3 of q is 128\n"
            "  why: it is [2, 8, 100, 128], the kernel expects [B, H, Sq, 64]\n"
            "  try: pass that length, or compile the program with it (a named extent is free)");
}

TEST_F(LaunchPlanTest, RefusesLengthsBeyond32Bit) {
  tensors[0].shape[2] = std::int64_t{1} << 31;
  EXPECT_THAT(refusal(), HasSubstr("dimension 2 of q is 2147483648"));
  EXPECT_THAT(refusal(), HasSubstr("lengths are 32 bit"));
}

TEST_F(LaunchPlanTest, RefusesAStrideInTheLastDimension) {
  tensors[0].strides[3] = 2;
  EXPECT_EQ(refusal(),
            "attention_like: the last dimension of q is not the dense one\n"
            "  why: its stride there is 2 elements, the kernel reads and writes with 1\n"
            "  try: a contiguous copy, or a transpose that leaves the last dimension in place");
}

TEST_F(LaunchPlanTest, RefusesUnalignedRows) {
  tensors[1].strides[2] = 65;
  EXPECT_EQ(refusal(),
            "attention_like: k is not aligned along dimension 2\n"
            "  why: its stride there is 65 elements (130 bytes), the kernel needs a multiple of 16 "
            "bytes\n"
            "  try: a contiguous copy, or rows padded to a multiple of 8 elements");
}

TEST_F(LaunchPlanTest, RefusesUnalignedAddresses) {
  tensors[0].data = reinterpret_cast<void*>(0x10002);
  EXPECT_THAT(refusal(),
              HasSubstr("attention_like: q is not aligned\n  why: it starts at 0x10002, the "
                        "kernel needs a multiple of 16 bytes"));
  tensors[0].data = nullptr;
  EXPECT_THAT(refusal(), HasSubstr("q has no memory"));
}

TEST_F(LaunchPlanTest, RefusesAnExpandedOutput) {
  tensors[0].strides[1] = 0;  // an input may be
  EXPECT_NO_THROW(bind());
  tensors[2].strides[1] = 0;
  EXPECT_THAT(refusal(), HasSubstr("o cannot be written"));
  EXPECT_THAT(refusal(), HasSubstr("its stride along dimension 1 is 0: 8 rows share one place"));
}

TEST_F(LaunchPlanTest, RefusesTensorsOfTwoDevices) {
  tensors[3].device = 1;
  EXPECT_THAT(refusal(), HasSubstr("q is on GPU 0, lse is on GPU 1"));
  tensors[3].device = cpu_device;
  EXPECT_THAT(refusal(), HasSubstr("lse is in CPU memory"));
}

TEST_F(LaunchPlanTest, RefusesCounts) {
  tensors.pop_back();
  EXPECT_THAT(refusal(), HasSubstr("3 were given, it takes 4: q, k, o, lse"));
  tensors.clear();
  EXPECT_THAT(refusal(), HasSubstr("0 were given"));
}

TEST_F(LaunchPlanTest, RefusesScalars) {
  scalars = {0.F};
  EXPECT_EQ(refusal(),
            "attention_like: scale is 0\n"
            "  why: the kernel was simplified under the promise that it is positive\n"
            "  try: a positive value, or a program that does not promise it");
  scalars = {std::numeric_limits<float>::quiet_NaN()};
  EXPECT_THAT(refusal(), HasSubstr("scale is nan"));
  scalars = {1};
  EXPECT_THAT(refusal(), HasSubstr("i32 was given, the kernel takes f32"));
  scalars = {};
  EXPECT_THAT(refusal(), HasSubstr("0 were given, it takes 1: scale"));
}

TEST_F(LaunchPlanTest, RefusesAStrideThatATileCannotSpan) {
  KernelSource source = test::attention_like_kernel();
  source.tensors[0].stride_limits.assign(4, std::numeric_limits<std::int64_t>::max());
  source.tensors[0].stride_limits[2] = std::numeric_limits<std::int32_t>::max() / 64;
  plan = LaunchPlan(std::make_shared<const KernelSource>(source));
  tensors[0].strides[2] = std::int64_t{1} << 24;
  EXPECT_EQ(bind().grid.count(), 2 * 8 * 2);
  tensors[0].strides[2] = std::int64_t{1} << 28;
  EXPECT_THAT(
      refusal(),
      HasSubstr("q is spread too far along dimension 2\n  why: its stride there is 268435456 "
                "elements, the kernel addresses up to 33554431"));
}

TEST_F(LaunchPlanTest, RefusesTooManyBlocks) {
  const std::int64_t many = 1 << 20;
  for (TensorView& view : tensors) view.shape[0] = many, view.shape[1] = many;
  EXPECT_EQ(refusal(),
            "attention_like: too many blocks: 1048576 along head\n"
            "  why: a grid has at most 65535 in that dimension\n"
            "  try: a schedule with flat_grid = true, or several launches");
  EXPECT_THROW(bind(), GridError);
}

TEST_F(LaunchPlanTest, AFlatGridIsOneRow) {
  KernelSource source = test::attention_like_kernel();
  source.flat_grid = true;
  plan = LaunchPlan(std::make_shared<const KernelSource>(source));
  for (TensorView& view : tensors) view.shape[0] = 70000, view.shape[1] = 3;
  const GridSize grid = bind().grid;
  EXPECT_EQ(grid.x, 70000U * 3 * 2);
  EXPECT_EQ(grid.y * grid.z, 1U);
  for (TensorView& view : tensors) view.shape[0] = view.shape[1] = 1 << 16;
  EXPECT_THAT(refusal(), HasSubstr("the kernel counts the tiles of all blocks up to 2147483647"));
}

class MappedPlanTest : public testing::Test {
 protected:
  MappedPlanTest() {
    const auto at = [](std::uintptr_t address) { return reinterpret_cast<void*>(address); };
    tensors = {TensorView::dense(at(0x10000), DType::bf16, {2, 8, 100, 128}, cpu_device),
               TensorView::dense(at(0x20000), DType::bf16, {2, 8, 300, 128}, cpu_device),
               TensorView::dense(at(0x30000), DType::bf16, {2, 8, 100, 128}, cpu_device)};
  }
  LaunchPlan::Bound bind() { return plan.bind(tensors, {}, block); }
  std::string refusal() {
    return message_of<Error>([&] { bind(); });
  }
  EmulatedTensorMap map(int index) {
    bind();
    EmulatedTensorMap map;
    std::memcpy(&map, block.bytes + TensorMaps::bytes * index, sizeof map);
    return map;
  }

  std::vector<TensorView> tensors;
  KernelSource source = test::mapped_kernel();
  LaunchPlan plan{std::make_shared<const KernelSource>(source)};
  ParameterBlock block;
};

TEST_F(MappedPlanTest, DescribesTensorsToTheEmulator) {
  const EmulatedTensorMap k = map(1);
  EXPECT_EQ(k.address, tensors[1].data);
  EXPECT_EQ(k.rank, 4);
  EXPECT_THAT(k.extents, testing::ElementsAre(128, 300, 8, 2, 0));
  EXPECT_THAT(k.strides, testing::ElementsAre(2, 256, 256 * 300, 256 * 300 * 8, 0));
  EXPECT_THAT(k.box, testing::ElementsAre(64, 96, 1, 1, 0));
  EXPECT_EQ(k.element_bytes, 2);
  EXPECT_EQ(k.swizzled_bytes, 128);
  EXPECT_EQ(k.tensor, 1);
  std::int32_t lengths[4];
  std::memcpy(lengths, block.bytes + 384, sizeof lengths);
  EXPECT_THAT(lengths, testing::ElementsAre(2, 8, 100, 300));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(&block) % TensorMaps::alignment, 0U);
}

TEST_F(MappedPlanTest, RowsMayRunAlongAnyDimension) {
  source.tensor_maps[1] = {.tensor = 1, .row_dim = 1, .rows = 8, .width = 32};
  plan = LaunchPlan(std::make_shared<const KernelSource>(source));
  const EmulatedTensorMap k = map(1);
  EXPECT_THAT(k.box, testing::ElementsAre(32, 1, 8, 1, 0));
  EXPECT_EQ(k.swizzled_bytes, 64);
}

TEST_F(MappedPlanTest, VectorsHaveNoSwizzle) {
  source.tensor_maps[1] = {.tensor = 1, .row_dim = 0, .rows = 1, .width = 80};
  plan = LaunchPlan(std::make_shared<const KernelSource>(source));
  const EmulatedTensorMap k = map(1);
  EXPECT_THAT(k.box, testing::ElementsAre(80, 1, 1, 1, 0));
  EXPECT_EQ(k.swizzled_bytes, 0);
}

TEST_F(MappedPlanTest, OneElementHasAnyStrideAndSomeTensorsNone) {
  for (TensorView& view : tensors) view.shape[0] = 1;
  tensors[1].strides[0] = 7;
  EXPECT_EQ(map(1).strides[3], 16);
  tensors[1].shape[2] = 0;
  tensors[1].data = nullptr;
  EXPECT_EQ(map(1).extents[1], 0);
  tensors[0].strides[1] = 0;  // all heads are one
  EXPECT_EQ(map(0).strides[2], 0);
}

TEST_F(MappedPlanTest, RefusesStridesThatAMapCannotHave) {
  tensors[1].strides[2] = -128;
  EXPECT_EQ(refusal(),
            "mapped: k cannot be moved by the copy engine along dimension 2\n"
            "  why: its stride there is -128 elements, a tensor map has none below 0\n"
            "  try: a contiguous copy, or a schedule with copy = cp_async");
  tensors[1].strides[2] = 128;
  tensors[1].strides[0] = std::int64_t{1} << 39;
  EXPECT_THAT(refusal(), HasSubstr("its stride there is 549755813888 elements of 2 bytes, a tensor "
                                   "map's are below 2^40 bytes"));
  tensors[1].strides[0] = 8 * 300 * 128 + 4;
  EXPECT_THAT(refusal(), HasSubstr("the kernel needs a multiple of 16 bytes"));
}

TEST_F(MappedPlanTest, RefusesBrokenMaps) {
  const auto broken = [](auto change) {
    KernelSource source = test::mapped_kernel();
    change(source);
    return message_of<InternalError>(
        [&] { LaunchPlan(std::make_shared<const KernelSource>(source)); });
  };
  EXPECT_THAT(broken([](KernelSource& s) { s.parameters[1].offset = 160; }),
              HasSubstr("no multiple of 64"));
  EXPECT_THAT(broken([](KernelSource& s) { s.parameters[2].offset = 384; }),
              HasSubstr("a field outside the parameters"));
  EXPECT_THAT(broken([](KernelSource& s) { s.parameters[0].index = 3; }),
              HasSubstr("it is not declared"));
  EXPECT_THAT(broken([](KernelSource& s) { s.tensor_maps[0].tensor = 3; }),
              HasSubstr("its tensor is not declared"));
  EXPECT_THAT(broken([](KernelSource& s) { s.tensor_maps[0].row_dim = 3; }),
              HasSubstr("its rows run along no dimension"));
  EXPECT_THAT(broken([](KernelSource& s) { s.tensor_maps[0].rows = 257; }), HasSubstr("over 256"));
  EXPECT_THAT(broken([](KernelSource& s) { s.tensor_maps[0].width = 128; }),
              HasSubstr("not 128, 64 or 32 bytes"));
  for (const int width : {4, 264})
    EXPECT_THAT(
        broken([&](KernelSource& s) { s.tensor_maps[0].rows = 1, s.tensor_maps[0].width = width; }),
        HasSubstr("over 256 elements, or no whole chunks of 16 bytes"));
  EXPECT_THAT(broken([](KernelSource& s) { s.tensors[0].alignment = 8; }),
              HasSubstr("an alignment of 16 bytes"));
  EXPECT_THAT(broken([](KernelSource& s) { s.tensors[0].dtype = DType::i32; }),
              HasSubstr("no elements of 16 bits, f32 or i1"));
}

TEST_F(MappedPlanTest, PersistentBlocksAreOneRow) {
  source.persistent = true;
  plan = LaunchPlan(std::make_shared<const KernelSource>(source));
  const auto on_cpu = [&](std::int64_t batch) {
    for (TensorView& view : tensors) view.shape[0] = batch, view.shape[1] = 1;
    const GridSize grid = bind().grid;
    EXPECT_EQ(grid.y * grid.z, 1U);
    return grid.x;
  };
  // Each works through several tiles where there are any.
  EXPECT_THAT((std::vector{on_cpu(0), on_cpu(1), on_cpu(2), on_cpu(3), on_cpu(100)}),
              testing::ElementsAre(0, 1, 1, 2, 3));

  for (TensorView& view : tensors) view.device = gpu, view.shape[0] = 70000, view.shape[1] = 2;
  const GridSize grid = bind().grid;  // more along the last axis than a grid allows
  EXPECT_EQ(grid.x, 140000U);
  EXPECT_EQ(plan.resident(grid, 132).x, 132U);
  EXPECT_EQ(plan.resident(7, 132).x, 7U);
  for (TensorView& view : tensors) view.shape[0] = view.shape[1] = 1 << 16;
  EXPECT_EQ(refusal(),
            "mapped: too much work: 4294967296 tiles up to axis batch\n"
            "  why: the kernel counts the tiles of all blocks up to 2147483647\n"
            "  try: larger tiles, or several launches");
}

TEST(LaunchPlan, RefusesBrokenSignatures) {
  const auto plan = [](auto change) {
    KernelSource source = test::attention_like_kernel();
    change(source);
    return message_of<InternalError>(
        [&] { LaunchPlan(std::make_shared<const KernelSource>(source)); });
  };
  EXPECT_THAT(plan([](KernelSource& s) { s.parameters[0].offset = s.parameter_bytes - 4; }),
              HasSubstr("a field outside the parameters"));
  EXPECT_THAT(plan([](KernelSource& s) { s.parameters[4].dim = 4; }),
              HasSubstr("a stride of no dimension"));
  EXPECT_THAT(plan([](KernelSource& s) { s.extents.push_back("pages"); }),
              HasSubstr("an extent that no tensor carries"));
  EXPECT_THAT(plan([](KernelSource& s) { s.extents.pop_back(); }),
              HasSubstr("an extent that is not declared"));
  EXPECT_THAT(plan([](KernelSource& s) { s.tensors[0].alignment = 12; }),
              HasSubstr("no power of two"));
  EXPECT_THAT(plan([](KernelSource& s) { s.parameter_bytes = 5000; }),
              HasSubstr("over 4096 bytes"));
}

TEST_F(LaunchPlanTest, IsFast) {
  const double time = test::fastest_nanoseconds([&] { bind(); });
  fmt::print("checking and packing: {:.0f} ns\n", time);
  EXPECT_LT(time, test::limit_in_release(500));
}

}  // namespace
}  // namespace flashcore
