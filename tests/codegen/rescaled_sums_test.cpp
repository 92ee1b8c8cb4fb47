// What is known of the sums that a loop rescales as a maximum grows.
#include "codegen/analysis/rescaled_sums.h"

#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "dsl/ir/parse.h"

namespace flashcore {
namespace {

/// Of a loop that carries a maximum %m and a sum of %p, which it scales by %decay.
CarriedValues carried(const std::string& decay_and_p) {
  const ir::Function f = ir::parse(fmt::format(R"(program sums
axis rows: parallel_tiles M tile 64
axis cols: tiles N tile 32
input s: f32 [M, N]
output y: f32 [M]
parameter scale: f32
{{
  %low = constant -3e38 : f32[rows]
  %start = constant 0 : f32[rows]
  %two = constant 2 : f32
  %scale = parameter scale : f32
  %0 = constant 0 : i32
  %1 = tile_count cols : i32
  %m, %l = loop cols from %0 to %1 {{
    tile %tile : i32
    carry %m0 = %low : f32[rows]
    carry %l0 = %start : f32[rows]
    %x = load s[rows, cols] : f32[rows, cols]
    %here = reduce_max %x along cols : f32[rows]
    %m1 = max %m0, %here : f32[rows]
    %grown = sub %m0, %m1 : f32[rows]
    %e = sub %x, %m1 : f32[rows, cols]
{}
    %sum = reduce_sum %p along cols : f32[rows]
    %l1 = fma %l0, %decay, %sum : f32[rows]
    yield %m1, %l1
  }}
  store y[rows], %l
}}
)",
                                               decay_and_p));
  const ir::OpId loop = f[f.body].ops[f[f.body].ops.size() - 2];
  return carried_values(f, f[loop]);
}

TEST(RescaledSums, HaveTheSlopeOfTheirExponents) {
  const CarriedValues found = carried(R"(
    %g2 = mul %grown, %two : f32[rows]
    %decay = exp2 %g2 : f32[rows]
    %e2 = mul %e, %two : f32[rows, cols]
    %p = exp2 %e2 : f32[rows, cols])");
  ASSERT_TRUE(found[1]);
  EXPECT_EQ(found[1]->follows, 0u);
  EXPECT_EQ(found[1]->slope, 2.0);
}

TEST(RescaledSums, MayHaveAParameterForASlope) {
  const CarriedValues found = carried(R"(
    %g2 = mul %grown, %scale : f32[rows]
    %decay = exp %g2 : f32[rows]
    %e2 = mul %e, %scale : f32[rows, cols]
    %p = exp %e2 : f32[rows, cols])");
  ASSERT_TRUE(found[1]);
  EXPECT_TRUE(found[1]->factor);
  EXPECT_FALSE(found[1]->slope);
}

TEST(RescaledSums, AreNoneWhereExponentsDiffer) {
  EXPECT_FALSE(carried(R"(
    %decay = exp2 %grown : f32[rows]
    %p = exp %e : f32[rows, cols])")[1]);
  EXPECT_FALSE(carried(R"(
    %decay = exp2 %grown : f32[rows]
    %e2 = mul %e, %scale : f32[rows, cols]
    %p = exp2 %e2 : f32[rows, cols])")[1]);
}

// 2^40 products of %scale, exp2(%scale), exp2(exp2(%scale)), and so on.
TEST(RescaledSums, OfFormsThatGrowAreGivenUp) {
  std::string text = "    %t0 = mul %e, %scale : f32[rows, cols]\n    %c0 = exp2 %scale : f32\n";
  for (int i = 1; i <= 40; ++i)
    text += fmt::format(
        "    %c{0} = exp2 %c{1} : f32\n"
        "    %a{0} = mul %t{1}, %c{0} : f32[rows, cols]\n"
        "    %t{0} = add %a{0}, %t{1} : f32[rows, cols]\n",
        i, i - 1);
  EXPECT_FALSE(carried(text + "    %p = exp2 %t40 : f32[rows, cols]\n"
                              "    %decay = exp2 %grown : f32[rows]")[1]);
}

}  // namespace
}  // namespace flashcore
