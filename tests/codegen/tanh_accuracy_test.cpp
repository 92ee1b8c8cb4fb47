// The polynomials that expand_tanh puts in the place of a tanh are as close to it as the pass says,
// up to the end of the range that each of them is for.
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "codegen/generate.h"
#include "dsl/flashcore.h"
#include "tests/support/kernel_run.h"

namespace flashcore {
namespace {

constexpr std::int64_t rows = 64, columns = 64;
constexpr float factor = 1 / 30.F;

/// y = tanh(x * factor) in a loop over tiles of columns.
Program capped() {
  ProgramBuilder b("capped");
  const Axis m = b.parallel_tiles("m", Extent(rows)), n = b.tiles("n", Extent(std::string("N")));
  const Tensor x = b.input("x", DType::f32, {Extent(rows), Extent(std::string("N"))});
  const Tensor y = b.output("y", DType::f32, {Extent(rows), Extent(std::string("N"))});
  const Tensor largest = b.output("largest", DType::f32, {Extent(rows)});
  const Tile scale = b.scalar("scale", DType::f32, /*positive=*/true);
  store(largest(m), b.loop(n, b.fill({m}, 0), [&](const Tile& most) {
    const Tile value = tanh(load(x(m, n)) * scale);
    store(y(m, n), value);
    return maximum(most, reduce_max(value, n));
  }));
  return b.finish();
}

/// The largest error in proportion to the true value, of arguments up to `most` of both signs.
double worst_error(double most) {
  const Program program = capped();
  Schedule schedule;
  schedule.tiles = {{"m", 64}, {"n", 16}};
  const KernelSource source = generate(program, schedule, find_target("sm_80"));
  EXPECT_NE(source.body.find("whether no square of"), std::string::npos);
  RunInputs in{.extents = {{"N", columns}}, .scalars = {factor}};
  std::vector<double>& x = in.values["x"];
  for (std::int64_t i = 1; i <= rows * columns; ++i)
    x.push_back((i % 2 ? 1 : -1) * most / factor * static_cast<double>(i) / (rows * columns));
  KernelRun run(program, in);
  run.emulate(source);
  double worst = 0;
  const std::vector<double> given = run.values(0), found = run.values(1);
  for (std::size_t i = 0; i < given.size(); ++i)
    worst =
        std::max(worst, std::abs(found[i] / std::tanh(static_cast<double>(factor) * given[i]) - 1));
  return worst;
}

TEST(TanhAccuracy, OfSmallArguments) { EXPECT_LE(worst_error(0.1), 1.4e-6); }

TEST(TanhAccuracy, OfModerateArguments) {
  for (const double most : {0.2, 0.3, 0.6, 0.8}) EXPECT_LE(worst_error(most), 1.4e-6) << most;
}

// By the special function unit, right to 4e-7 of 1: of small arguments that is a larger part.
TEST(TanhAccuracy, OfAnyArguments) {
  EXPECT_LE(worst_error(4), 1e-2);
  EXPECT_GT(worst_error(4), 1.4e-6);
}

}  // namespace
}  // namespace flashcore
