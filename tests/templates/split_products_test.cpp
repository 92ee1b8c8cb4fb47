// Products of f32 tiles by their bf16 parts: nearly as near to the exact values as f32 sums are.
#include "templates/split_products.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "codegen/generate.h"
#include "dsl/error.h"
#include "tests/support/kernel_run.h"

namespace flashcore {
namespace {

constexpr int dim = 64;

/// o = a b^T b over rows of b: the left operand of the first product is split before the loop, the
/// second one's is computed in it, and b is read both ways round.
Program products_of_f32() {
  ProgramBuilder b("products_of_f32");
  const Extent rows(std::string("M")), keys(std::string("N"));
  const Axis m = b.parallel_tiles("m", rows), n = b.tiles("n", keys), d = b.whole("d", dim);
  const Tensor left = b.input("a", DType::f32, {rows, dim});
  const Tensor right = b.input("b", DType::f32, {keys, dim});
  const Tensor o = b.output("o", DType::f32, {rows, dim});
  const Factor query = split(load(left(m, d)));
  store(o(m, d), b.loop(n, b.fill({m, d}, 0), [&](const Tile& sum) {
    const Factor key = split(load(right(n, d)));
    return sum + dot(split(dot(query, transpose(key))), key);
  }));
  return b.finish();
}

std::vector<Schedule> schedules() {
  std::vector<Schedule> all;
  for (const int warps_n : {1, 2})
    for (const ProductSplit split : {ProductSplit::terms, ProductSplit::columns})
      for (const bool keep : {false, true}) {
        Schedule schedule;
        schedule.tiles = {{"m", 32}, {"n", 32}};
        schedule.warps_m = 2;
        schedule.warps_n = warps_n;
        schedule.product_split = split;
        schedule.keep_operands = keep;
        all.push_back(schedule);
      }
  return all;
}

/// The largest difference from the exact values, over the largest of these.
struct Errors {
  double of_kernel = 0, of_f32 = 0;
};

Errors errors_of(const KernelRun& run, std::size_t m, std::size_t n) {
  const std::vector<double> a = run.values(0), b = run.values(1), o = run.values(2);
  Errors errors;
  double largest = 0;
  for (std::size_t i = 0; i < m; ++i) {
    std::vector<double> exact(dim);
    std::vector<float> plain(dim);
    for (std::size_t j = 0; j < n; ++j) {
      double score = 0;
      float rounded = 0;
      for (std::size_t k = 0; k < dim; ++k) {
        score += a[i * dim + k] * b[j * dim + k];
        rounded = std::fma(static_cast<float>(a[i * dim + k]), static_cast<float>(b[j * dim + k]),
                           rounded);
      }
      for (std::size_t k = 0; k < dim; ++k) {
        exact[k] += score * b[j * dim + k];
        plain[k] = std::fma(rounded, static_cast<float>(b[j * dim + k]), plain[k]);
      }
    }
    for (std::size_t k = 0; k < dim; ++k) {
      errors.of_kernel = std::max(errors.of_kernel, std::abs(o[i * dim + k] - exact[k]));
      errors.of_f32 = std::max(errors.of_f32, std::abs(plain[k] - exact[k]));
      largest = std::max(largest, std::abs(exact[k]));
    }
  }
  return {errors.of_kernel / largest, errors.of_f32 / largest};
}

TEST(SplitProducts, AreAsNearAsSumsOfF32) {
  const Program program = products_of_f32();
  for (const Schedule& schedule : schedules())
    for (const auto& [m, n] : {std::pair{50, 77}, {5, 300}, {33, 1}}) {
      SCOPED_TRACE(fmt::format("{} and {}, warps_n {} {}", m, n, schedule.warps_n,
                               name_of(schedule.product_split)));
      try {
        KernelRun run(program, {.extents = {{"M", m}, {"N", n}}});
        (void)run.emulate(generate(program, schedule, find_target("sm_80")));
        EXPECT_EQ(run.compare(), "");
        const Errors errors =
            errors_of(run, static_cast<std::size_t>(m), static_cast<std::size_t>(n));
        EXPECT_LE(errors.of_kernel, 2 * errors.of_f32 + 1e-7);
      } catch (const Error& error) {
        ADD_FAILURE() << error.what();
      }
    }
}

// One part less, and the error is that of 16 bits.
TEST(SplitProducts, PartsAddUpToTheirTile) {
  ProgramBuilder b("parts");
  const Extent rows(std::string("M"));
  const Axis m = b.parallel_tiles("m", rows), d = b.whole("d", dim);
  const Tensor x = b.input("x", DType::f32, {rows, dim});
  const Tensor whole = b.output("whole", DType::f32, {rows, dim});
  const Tensor two = b.output("two", DType::f32, {rows, dim});
  const Factor parts = split(load(x(m, d)));
  const Tile high = cast(parts[0], DType::f32) + cast(parts[1], DType::f32);
  store(two(m, d), high);
  store(whole(m, d), high + cast(parts[2], DType::f32));
  const Program program = b.finish();
  Schedule schedule;
  schedule.tiles = {{"m", 32}};
  KernelRun run(program, {.extents = {{"M", 40}}});
  (void)run.emulate(generate(program, schedule, find_target("sm_80")));
  const std::vector<double> from = run.values(0), sums = run.values(1), short_sums = run.values(2);
  double off = 0, short_off = 0;
  for (std::size_t i = 0; i < from.size(); ++i) {
    off = std::max(off, std::abs(sums[i] / from[i] - 1));
    short_off = std::max(short_off, std::abs(short_sums[i] / from[i] - 1));
  }
  EXPECT_LE(off, 1e-7);
  EXPECT_GE(short_off, 1e-6);
}

}  // namespace
}  // namespace flashcore
