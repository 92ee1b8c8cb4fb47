// The arithmetic of the host prelude, against what the GPU's instructions are documented to give.
#include "codegen/prelude.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <regex>
#include <string>

#include <gtest/gtest.h>

#include "runtime/emulator/host_prelude.h"
#include "runtime/emulator/prelude/convert.h"
#include "runtime/emulator/prelude/math.h"
#include "tests/runtime/emulator/support/kernels.h"

namespace flashcore::testing {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

TEST(Convert, EveryHalfBecomesItsFloat) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const fc::f16 half{static_cast<std::uint16_t>(bits)};
    const bool special = (bits & 0x7c00) == 0x7c00;
    if (!special) {
      ASSERT_EQ(fc::to_float(half), from_half(half.bits)) << bits;
      ASSERT_EQ(fc::from_float<fc::f16>(fc::to_float(half)).bits, bits);
    }
    ASSERT_EQ(std::isnan(fc::to_float(half)), special && (bits & 0x3ff) != 0) << bits;
  }
  EXPECT_EQ(fc::to_float(fc::f16{0x7c00}), inf);
  EXPECT_EQ(fc::to_float(fc::f16{0xfc00}), -inf);
}

// Between every two neighbouring halves: just below the middle, the middle, just above it.
TEST(Convert, HalvesAreRoundedToNearestEven) {
  for (std::uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const auto low = static_cast<std::uint16_t>(bits), high = static_cast<std::uint16_t>(bits + 1);
    const float middle = (from_half(low) + from_half(high)) / 2;
    ASSERT_EQ(fc::from_float<fc::f16>(std::nextafter(middle, 0.f)).bits, low);
    ASSERT_EQ(fc::from_float<fc::f16>(middle).bits, bits % 2 == 0 ? low : high);
    ASSERT_EQ(fc::from_float<fc::f16>(std::nextafter(-middle, -inf)).bits, high | 0x8000);
  }
  EXPECT_EQ(fc::from_float<fc::f16>(std::nextafter(65520.f, 0.f)).bits, 0x7bff);
  EXPECT_EQ(fc::from_float<fc::f16>(65520.f).bits, 0x7c00);
  EXPECT_EQ(fc::from_float<fc::f16>(-inf).bits, 0xfc00);
  EXPECT_EQ(fc::from_float<fc::f16>(-nan).bits, 0x7fff);
  EXPECT_EQ(fc::from_float<fc::f16>(1e-10f).bits, 0);
}

TEST(Convert, Bf16IsRoundedToNearestEven) {
  EXPECT_EQ(fc::from_float<fc::bf16>(fc::bits_float(0x3f808000)).bits, 0x3f80);  // tie, even below
  EXPECT_EQ(fc::from_float<fc::bf16>(fc::bits_float(0x3f818000)).bits, 0x3f82);  // tie, even above
  EXPECT_EQ(fc::from_float<fc::bf16>(fc::bits_float(0x3f808001)).bits, 0x3f81);
  EXPECT_EQ(fc::from_float<fc::bf16>(fc::bits_float(0x3f817fff)).bits, 0x3f81);
  EXPECT_EQ(fc::from_float<fc::bf16>(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_EQ(fc::from_float<fc::bf16>(-inf).bits, 0xff80);
  EXPECT_EQ(fc::from_float<fc::bf16>(fc::bits_float(0x7f800001)).bits, 0x7fff);
  EXPECT_EQ(fc::to_float(fc::bf16{0x4049}), 3.140625f);
}

TEST(Convert, PackPutsTheFirstLow) {
  EXPECT_EQ((fc::pack<fc::f16>(1.f, -2.f)), 0xc0003c00u);
  EXPECT_EQ((fc::pack<fc::bf16>(1.f, -2.f)), 0xc0003f80u);
}

TEST(Math, Exp2FlushesAndSaturates) {
  EXPECT_EQ(fc::exp2(3.f), 8.f);
  EXPECT_EQ(fc::exp2(-126.f), 0x1p-126f);
  EXPECT_EQ(fc::exp2(-127.f), 0.f);
  EXPECT_EQ(fc::exp2(-inf), 0.f);
  EXPECT_EQ(fc::exp2(fc::lowest()), 0.f);
  EXPECT_EQ(fc::exp2(128.f), inf);
  EXPECT_TRUE(std::isnan(fc::exp2(nan)));
}

TEST(Math, TrigonometryIsCloseForAnglesOfAnySize) {
  SmallRun run;
  run(small_kernel(R"(
  if (thread != 0) return;
  float worst = 0;
  const auto note = [&](float found, double expected, double size) {
    const double error = __builtin_fabs(found - expected) / size;
    if (!(error <= worst)) worst = static_cast<float>(error);
  };
  float x = 1e-9f;
  for (int i = 0; i < 20000; ++i) {
    x *= 1.0028f;  // to 2e15
    for (int sign = -1; sign < 2; sign += 2) {
      const float angle = sign * x;
      const double s = __builtin_sin(static_cast<double>(angle)), c = __builtin_cos(static_cast<double>(angle));
      note(fc::sin(angle), s, 1);
      note(fc::cos(angle), c, 1);
      note(fc::tan(angle), s / c, (1 + __builtin_fabs(s / c)) * (1 + __builtin_fabs(s / c)));
    }
  }
  float found[4] = {worst, fc::sin(-0.f), fc::sin(fc::infinity()), fc::cos(4.5e15f)};
  fc::store_global<4>(p.y, found);
)"));
  EXPECT_LT(run.y[0], 3e-7f);
  EXPECT_EQ(run.y[1], 0.f);
  EXPECT_TRUE(std::isnan(run.y[2]));
  EXPECT_LE(std::abs(run.y[3]), 1.f);
}

// In proportion to the true one, however small; of the other, which is not, the same of 1.
TEST(Math, PreciseTanhIsAsCloseAsItSays) {
  SmallRun run;
  run(small_kernel(R"(
  if (thread != 0) return;
  float worst = 0, coarse = 0;
  for (float x = 1e-37f; x <= 20.f; x *= 1.001f) {
    const double tanh = __builtin_tanh(static_cast<double>(x));
    for (float sign = -1; sign <= 1; sign += 2) {
      const double error = __builtin_fabs(fc::precise_tanh(sign * x) / (sign * tanh) - 1);
      if (error > worst) worst = static_cast<float>(error);
    }
    const double off = __builtin_fabs(fc::tanh(x) - tanh);
    if (off > coarse) coarse = static_cast<float>(off);
  }
  const bool ends = fc::precise_tanh(fc::infinity()) == 1.f && fc::precise_tanh(-fc::infinity()) == -1.f;
  const float not_a_number = fc::infinity() - fc::infinity();
  float found[4] = {worst, coarse, ends ? 1.f : 0.f, fc::precise_tanh(not_a_number)};
  fc::store_global<4>(p.y, found);
)"));
  EXPECT_LT(run.y[0], 5e-7);
  EXPECT_GT(run.y[1], 2e-8);
  EXPECT_LT(run.y[1], 2.5e-7);
  EXPECT_EQ(run.y[2], 1.F);
  EXPECT_TRUE(std::isnan(run.y[3]));
}

// In double precision, over all exponents: as close as the special function unit is said to be.
TEST(Math, QuotientsOfExtremes) {
  EXPECT_EQ(fc::divide(3.f, 2.f), 1.5f);
  EXPECT_EQ(fc::divide(1e38f, 0x1.8p126f), 0.f);  // the documented gap of the fast division
  EXPECT_TRUE(std::isnan(fc::divide(inf, 0x1.8p126f)));
  EXPECT_EQ(fc::divide(1.f, 0.f), inf);
  EXPECT_EQ(fc::reciprocal(0.f), inf);
  EXPECT_EQ(fc::reciprocal(-0x1p-130f), -inf);
  EXPECT_EQ(fc::reciprocal(0x1p127f), 0.f);
  EXPECT_EQ(fc::log2(0.f), -inf);
  EXPECT_EQ(fc::log2(8.f), 3.f);
}

TEST(Math, MaximumAndMinimumIgnoreNaN) {
  EXPECT_EQ(fc::max(nan, 1.f), 1.f);
  EXPECT_EQ(fc::max(1.f, nan), 1.f);
  EXPECT_EQ(fc::min(nan, 1.f), 1.f);
  EXPECT_EQ(fc::min(1.f, nan), 1.f);
  EXPECT_EQ(fc::max(-inf, fc::lowest()), fc::lowest());
  EXPECT_EQ(fc::min(-2, 3), -2);
}

TEST(Math, DivisionTowardsMinusInfinity) {
  for (int a = -9; a < 10; ++a) {
    EXPECT_EQ(fc::floor_div(a, 4), static_cast<int>(std::floor(a / 4.0))) << a;
    EXPECT_EQ(fc::floor_mod(a, 4), a - 4 * fc::floor_div(a, 4)) << a;
  }
}

// A body that compiles for the GPU compiles for the host: no primitive is missing here.
TEST(Prelude, HasEveryDevicePrimitive) {
  const std::regex declaration(R"(FC_DEVICE (?:\w+ )*(\w+)\()");
  const std::string host = expand_prelude("prelude.h");
  int primitives = 0;
  for (const PreludeFile& file : device_prelude()) {
    const std::string text(file.text);
    for (std::sregex_iterator match(text.begin(), text.end(), declaration), end; match != end;
         ++match) {
      const std::string name = (*match)[1];
      EXPECT_TRUE(std::regex_search(host, std::regex("FC_DEVICE (\\w+ )*" + name + "\\(")))
          << file.name << " has " << name;
      ++primitives;
    }
  }
  EXPECT_GT(primitives, 20);
}

}  // namespace
}  // namespace flashcore::testing
