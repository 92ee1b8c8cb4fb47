// Derivatives of expressions, against central differences in double precision.
#include "dsl/derivative.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dsl/error.h"
#include "dsl/expression_text.h"
#include "dsl/program_builder.h"
#include "runtime/reference/reference.h"

namespace flashcore {
namespace {

constexpr int count = 8;
const std::vector<double> points{-2.3, -1.1, -0.6, -0.2, 0.3, 0.7, 1.4, 2.6};

/// f and its derivative by `score` at the points moved by `shift`.
std::array<std::vector<double>, 2> values_of(const std::string& text, double shift = 0) {
  ProgramBuilder b("function");
  const Axis rows = b.parallel_tiles("rows", count);
  const Tensor x = b.input("x", DType::f32, {count});
  const Tensor y = b.output("y", DType::f32, {count}), dy = b.output("dy", DType::f32, {count});
  const Tile by = load(x(rows)), zeros = b.fill({rows}, 0);
  const Tile value = read_expression(b, text, {{"score", by}, {"q_idx", index(rows)}}, {});
  store(y(rows), zeros + value);
  store(dy(rows), zeros + derivative(value, by));
  const Program program = b.finish();
  std::vector<float> at(count);
  for (int i = 0; i < count; ++i)
    at[static_cast<std::size_t>(i)] =
        static_cast<float>(points[static_cast<std::size_t>(i)] + shift);
  std::vector<float> unused(count);
  const std::vector<TensorView> tensors{
      TensorView::dense(at.data(), DType::f32, {count}, cpu_device),
      TensorView::dense(unused.data(), DType::f32, {count}, cpu_device),
      TensorView::dense(unused.data(), DType::f32, {count}, cpu_device)};
  std::vector<ReferenceOutput> outputs = evaluate(program.function(), tensors, {});
  return {std::move(outputs[0].values), std::move(outputs[1].values)};
}

class DerivativeTest : public testing::TestWithParam<const char*> {};

TEST_P(DerivativeTest, IsTheLimitOfDifferences) {
  constexpr double step = 1.0 / 1024;  // exact in the f32 that the points are stored in
  const auto [value, slope] = values_of(GetParam());
  const auto [above, _] = values_of(GetParam(), step);
  const auto [below, __] = values_of(GetParam(), -step);
  for (int i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const double expected = (above[at] - below[at]) / (2 * step);
    EXPECT_NEAR(slope[at], expected, 1e-4 * std::max(1.0, std::fabs(expected)))
        << "at " << points[at];
  }
}

INSTANTIATE_TEST_SUITE_P(
    Functions, DerivativeTest,
    testing::Values("score", "3 * score + 0.5", "2 - score", "-score", "score * score",
                    "score * q_idx + q_idx", "1 / (score * score + 1)", "score / (q_idx + 1)",
                    "(score + 1) / (score * score + 2)", "20 * tanh(score / 20)", "exp(score)",
                    "exp2(score)", "log(score * score + 1)", "log2(score * score + 1)",
                    "sqrt(score * score + 1)", "sin(score)", "cos(score)", "tan(score / 4)",
                    "atan(score)", "erf(score)", "expm1(score)", "log1p(score * score)",
                    "abs(score)", "max(score, 0)", "min(score, q_idx - 3)",
                    "where(score > 1, score * score, 2 * score)", "where(q_idx > 3, score, 7)",
                    "score + floor(score / 100)", "half = score / 2; half * half * half"),
    [](const auto& info) { return fmt::format("case_{}", info.index); });

TEST(Derivative, IsZeroOfWhatDoesNotDependOnIt) {
  for (const char* text : {"7.5", "0.5 * q_idx", "floor(score)", "where(score > 0, 1.0, 2.0)"})
    EXPECT_THAT(values_of(text)[1], testing::Each(0.0)) << text;
}

TEST(Derivative, WantsFloats) {
  ProgramBuilder b("p");
  const Axis rows = b.parallel_tiles("rows", count);
  const Tile positions = index(rows);
  EXPECT_THROW((void)derivative(positions, positions), SpecError);
}

}  // namespace
}  // namespace flashcore
