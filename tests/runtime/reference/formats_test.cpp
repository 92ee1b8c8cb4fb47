// Rounding to the formats of memory: values worked out by hand, and every 16-bit pattern.
#include "runtime/reference/formats.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace flashcore {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

TEST(Formats, Bf16RoundsToNearestEven) {
  EXPECT_EQ(round_to(DType::bf16, 1 + 1.0 / 256), 1);              // halfway, to even
  EXPECT_EQ(round_to(DType::bf16, 1 + 3.0 / 256), 1 + 4.0 / 256);  // halfway, to even
  EXPECT_EQ(round_to(DType::bf16, 1 + 1.0 / 256 + 1e-12), 1 + 2.0 / 256);
  EXPECT_EQ(round_to(DType::bf16, 3.4e38), infinity);
  EXPECT_EQ(round_to(DType::bf16, -3.3895e38), -255 * std::ldexp(1.0, 120));
  EXPECT_EQ(round_to(DType::bf16, std::ldexp(1.0, -133)), std::ldexp(1.0, -133));  // subnormal
  EXPECT_EQ(round_to(DType::bf16, std::ldexp(1.0, -134)), 0);                      // halfway to it
}

TEST(Formats, F16RoundsToNearestEven) {
  EXPECT_EQ(round_to(DType::f16, 1 + 1.0 / 2048), 1);
  EXPECT_EQ(round_to(DType::f16, 65519.99), 65504);
  EXPECT_EQ(round_to(DType::f16, 65520), infinity);
  EXPECT_EQ(round_to(DType::f16, std::ldexp(3.0, -25)), std::ldexp(2.0, -24));
  EXPECT_EQ(round_to(DType::f16, -std::ldexp(1.0, -26)), 0);
  EXPECT_TRUE(std::signbit(round_to(DType::f16, -std::ldexp(1.0, -26))));
  // In two steps, over f32, this would round down: its f32 is exactly halfway.
  EXPECT_EQ(round_to(DType::f16, 1 + 1.0 / 2048 + std::ldexp(1.0, -40)), 1 + 2.0 / 2048);
}

TEST(Formats, TheOthers) {
  EXPECT_EQ(round_to(DType::f32, 0.1), 0.1f);
  EXPECT_EQ(round_to(DType::i32, -2.9), -2);
  EXPECT_EQ(round_to(DType::i32, 1e10), 2147483647);
  EXPECT_EQ(round_to(DType::i32, std::nan("")), 0);
  EXPECT_EQ(round_to(DType::i1, -3), 1);
  for (const DType type : {DType::f16, DType::bf16, DType::f32}) {
    EXPECT_EQ(round_to(type, -infinity), -infinity);
    EXPECT_TRUE(std::isnan(round_to(type, std::nan(""))));
  }
}

TEST(Formats, EveryPatternComesBack) {
  for (const DType type : {DType::f16, DType::bf16})
    for (std::uint32_t pattern = 0; pattern < 65536; ++pattern) {
      const auto bits = static_cast<std::uint16_t>(pattern);
      const double value = read_element(type, &bits, 0);
      std::uint16_t back = 0;
      write_element(type, &back, 0, value);
      if (std::isnan(value))
        ASSERT_TRUE(std::isnan(read_element(type, &back, 0))) << pattern;
      else
        ASSERT_EQ(back, bits) << value;
      if (!std::isnan(value)) {
        ASSERT_EQ(round_to(type, value), value);
      }
    }
  const std::uint16_t one[] = {0x3c00, 0x3f80};
  EXPECT_EQ(read_element(DType::f16, one, 0), 1);
  EXPECT_EQ(read_element(DType::bf16, one, 1), 1);
}

TEST(Formats, WiderElements) {
  const float reals[] = {1.5f, -2.5f};
  const std::int32_t integers[] = {7, -9};
  EXPECT_EQ(read_element(DType::f32, reals, 1), -2.5);
  EXPECT_EQ(read_element(DType::i32, integers, 1), -9);
  float real[2] = {};
  write_element(DType::f32, real, 1, 0.1);
  EXPECT_EQ(real[1], 0.1f);
  std::int32_t integer = 0;
  write_element(DType::i32, &integer, 0, 3.0);
  EXPECT_EQ(integer, 3);
}

}  // namespace
}  // namespace flashcore
