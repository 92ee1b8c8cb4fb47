#include "runtime/overlap.h"

#include <cstdlib>
#include <random>
#include <set>

#include <gmock/gmock.h>

#include "dsl/error.h"
#include "tests/runtime/support/expectations.h"
#include "tests/runtime/support/kernels.h"

namespace flashcore {
namespace {

using testing::HasSubstr;

std::byte buffer[1 << 16];

TensorView view_at(std::int64_t byte, DType dtype, std::initializer_list<std::int64_t> shape,
                   std::initializer_list<std::int64_t> strides) {
  TensorView view = TensorView::dense(buffer + byte, dtype, shape, cpu_device);
  int dim = 0;
  for (const std::int64_t stride : strides) view.strides[dim++] = stride;
  return view;
}

// Every byte of every element.
std::set<std::int64_t> bytes_of(const TensorView& view) {
  std::set<std::int64_t> starts{static_cast<std::byte*>(view.data) - buffer}, bytes;
  for (int dim = 0; dim < view.rank; ++dim) {
    std::set<std::int64_t> next;
    for (const std::int64_t start : starts) {
      for (std::int64_t i = 0; i < view.shape[dim]; ++i) {
        next.insert(start + i * view.strides[dim] * size_of(view.dtype));
      }
    }
    starts = std::move(next);
  }
  for (const std::int64_t start : starts) {
    for (int i = 0; i < size_of(view.dtype); ++i) bytes.insert(start + i);
  }
  return bytes;
}

TEST(Overlap, IsTheSameMemoryOrPartOfIt) {
  const TensorView q = view_at(0, DType::bf16, {2, 4, 8}, {32, 8, 1});
  EXPECT_TRUE(share_memory(q, q));
  EXPECT_TRUE(share_memory(q, view_at(64, DType::f32, {1}, {1})));
  EXPECT_FALSE(share_memory(q, view_at(128, DType::bf16, {2, 4, 8}, {32, 8, 1})));
}

TEST(Overlap, IsNoneBetweenSlicesOfAPackedProjection) {
  // [length, four, heads, dim], of which the output is one of the four
  const auto slice = [](int which) {
    return view_at(2L * which * 64, DType::bf16, {40, 2, 32}, {256, 32, 1});
  };
  EXPECT_FALSE(share_memory(slice(0), slice(3)));
  EXPECT_TRUE(share_memory(slice(2), slice(2)));
}

TEST(Overlap, IsNoneWithAnEmptyArrayOrAnotherDevice) {
  const TensorView one = view_at(0, DType::bf16, {8}, {1});
  EXPECT_FALSE(share_memory(one, view_at(0, DType::bf16, {0}, {1})));
  TensorView other = one;
  other.device = 1;
  EXPECT_FALSE(share_memory(one, other));
  TensorView shape = one;
  shape.device = no_device;
  EXPECT_FALSE(share_memory(shape, shape));
}

TEST(Overlap, IsWhatCountingBytesSays) {
  std::mt19937 random(1);
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  const auto any = [&] {
    return view_at(2 * draw(2000, 2060), draw(0, 1) != 0 ? DType::bf16 : DType::f32,
                   {draw(1, 3), draw(1, 4), draw(1, 4)},
                   {draw(-60, 60), draw(-20, 20), draw(1, 3)});
  };
  int shared = 0;
  for (int i = 0; i < 5000; ++i) {
    const TensorView a = any(), b = any();
    std::set<std::int64_t> both = bytes_of(a);
    const std::size_t apart = both.size() + bytes_of(b).size();
    both.merge(bytes_of(b));
    ASSERT_EQ(share_memory(a, b), both.size() < apart) << i;
    shared += both.size() < apart ? 1 : 0;
  }
  EXPECT_GT(shared, 500);
  EXPECT_LT(shared, 4500);
}

TEST(Overlap, OfAnOutputIsRefused) {
  const KernelSource source = test::attention_like_kernel();
  const TensorView q = view_at(0, DType::bf16, {1, 2, 8, 64}, {1024, 512, 64, 1});
  const TensorView k = view_at(4096, DType::bf16, {1, 2, 8, 64}, {1024, 512, 64, 1});
  const TensorView lse = view_at(16384, DType::f32, {1, 2, 8}, {16, 8, 1});
  const std::array apart{q, k, view_at(8192, DType::bf16, {1, 2, 8, 64}, {1024, 512, 64, 1}), lse};
  check_outputs_apart(source, apart);
  const std::array in_place{q, k, k, lse};
  EXPECT_THAT(test::message_of<DeviceError>([&] { check_outputs_apart(source, in_place); }),
              HasSubstr("o shares memory with k\n  why: blocks write o while others still read k"));
}

}  // namespace
}  // namespace flashcore
