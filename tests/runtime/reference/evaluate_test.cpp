// What single operations mean, on programs small enough to work out by hand.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "tests/runtime/reference/arrays.h"

namespace flashcore {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
const double nan = std::nan("");

using Values = std::vector<double>;

/// y = op(a, b, c) of three vectors of f32.
double ternary(const std::string& op, double a, double b = 0, double c = 0,
               ReferenceOptions options = {}) {
  const std::string text = R"(program test
axis n: whole 1
input a: f32 [1]
input b: f32 [1]
input c: f32 [1]
output y: f32 [1]
{
  %a = load a[n] : f32[n]
  %b = load b[n] : f32[n]
  %c = load c[n] : f32[n]
  %t = constant 1 : i1
  %f = constant 0 : i1
  )" + op + "\n  store y[n], %y\n}\n";
  return evaluate_text(text,
                       {{DType::f32, {1}, {a}},
                        {DType::f32, {1}, {b}},
                        {DType::f32, {1}, {c}},
                        {DType::f32, {1}}},
                       {}, options)[0]
      .values[0];
}
double binary(const std::string& code, double a, double b) {
  return ternary("%y = " + code + " %a, %b : f32[n]", a, b);
}
double unary(const std::string& code, double a) {
  return ternary("%y = " + code + " %a : f32[n]", a);
}
bool holds(const std::string& condition, double a, double b) {
  return ternary(condition + "\n  %y = where %h, %a, %b : f32[n]", a, b) == a;
}

TEST(Reference, Arithmetic) {
  EXPECT_EQ(unary("neg", 2), -2);
  EXPECT_EQ(unary("abs", -2), 2);
  EXPECT_EQ(unary("exp", 1), std::exp(1.0));
  EXPECT_EQ(unary("exp2", -infinity), 0);
  EXPECT_EQ(unary("log", 0), -infinity);
  EXPECT_EQ(unary("log2", 8), 3);
  EXPECT_EQ(unary("sqrt", 9), 3);
  EXPECT_EQ(unary("tanh", 0.5), std::tanh(0.5));
  EXPECT_EQ(unary("reciprocal", 4), 0.25);
  EXPECT_EQ(binary("add", 1, 2), 3);
  EXPECT_EQ(binary("sub", 1, 2), -1);
  EXPECT_EQ(binary("mul", 3, 2), 6);
  EXPECT_EQ(binary("div", 3, 2), 1.5);
  EXPECT_EQ(ternary("%y = fma %a, %b, %c : f32[n]", 2, 3, 4), 10);
}

TEST(Reference, ANanGivesWayInMinAndMaxAndNowhereElse) {
  EXPECT_EQ(binary("max", nan, 2), 2);
  EXPECT_EQ(binary("min", 2, nan), 2);
  EXPECT_TRUE(std::isnan(binary("add", nan, 2)));
  EXPECT_TRUE(std::isnan(binary("sub", infinity, infinity)));
  EXPECT_TRUE(std::isnan(binary("div", 0, 0)));
}

TEST(Reference, Conditions) {
  EXPECT_TRUE(holds("%h = lt %a, %b : i1[n]", 1, 2));
  EXPECT_FALSE(holds("%h = lt %a, %b : i1[n]", 2, 1));
  EXPECT_FALSE(holds("%h = gt %a, %b : i1[n]", 1, 2));
  EXPECT_TRUE(holds("%h = ne %a, %b : i1[n]", 1, 2));
  EXPECT_FALSE(holds("%h = eq %a, %b : i1[n]", 1, 2));
  EXPECT_TRUE(holds("%h = le %a, %b : i1[n]", 1, 2));
  EXPECT_FALSE(holds("%h = ge %a, %b : i1[n]", 1, 2));
  EXPECT_TRUE(holds("%h = logical_or %t, %f : i1", 1, 2));
  EXPECT_FALSE(holds("%h = logical_and %t, %f : i1", 1, 2));
  EXPECT_TRUE(holds("%h = logical_not %f : i1", 1, 2));
}

TEST(Reference, IntegersRoundTowardsMinusInfinity) {
  const auto run = [](const std::string& code, int a, int b) {
    return evaluate_text(R"(program test
axis n: whole 1
parameter a: i32
parameter b: i32
output y: i32 [1]
{
  %zero = constant 0 : i32[n]
  %a = parameter a : i32
  %b = parameter b : i32
  %c = )" + code + R"( %a, %b : i32
  %y = add %zero, %c : i32[n]
  store y[n], %y
}
)",
                         {{DType::i32, {1}}}, {a, b})[0]
        .values[0];
  };
  EXPECT_EQ(run("div", -7, 2), -4);
  EXPECT_EQ(run("mod", -7, 2), 1);
  EXPECT_EQ(run("div", 7, -2), -4);
  EXPECT_EQ(run("mod", 7, -2), -1);
}

TEST(Reference, CastsRoundOnlyInStorage) {
  const std::string text = "%h = cast %a : bf16[n]\n  %y = cast %h : f32[n]";
  EXPECT_EQ(ternary(text, 1 + 1.0 / 512), 1 + 1.0 / 512);
  EXPECT_EQ(ternary(text, 1 + 1.0 / 512, 0, 0, in_storage), 1);
  const std::string cut = "%i = cast %a : i32[n]\n  %y = cast %i : f32[n]";
  EXPECT_EQ(ternary(cut, -2.75), -2);
}

TEST(Reference, StorageRoundsEveryResult) {
  EXPECT_EQ(ternary("%y = add %a, %b : f32[n]", 1, 1e-9), 1 + double{1e-9f});
  EXPECT_EQ(ternary("%y = add %a, %b : f32[n]", 1, 1e-9, 0, in_storage), 1);
  EXPECT_EQ(ternary("%k = constant 0.1 : f32\n  %y = mul %a, %k : f32[n]", 1), 0.1);
  EXPECT_EQ(ternary("%k = constant 0.1 : f32\n  %y = mul %a, %k : f32[n]", 1, 0, 0, in_storage),
            double{0.1f});
}

TEST(Reference, TilesBroadcastByAxis) {
  EXPECT_EQ(evaluate_text(R"(program test
axis m: whole 2
axis n: whole 3
input a: f32 [2]
input b: f32 [3]
output y: f32 [2, 3]
output z: f32 [3, 2]
{
  %a = load a[m] : f32[m]
  %b = load b[n] : f32[n]
  %ab = sub %a, %b : f32[m, n]
  %y = add %ab, %b : f32[m, n]
  store y[m, n], %ab
  %z = transpose %y : f32[n, m]
  %zb = sub %z, %b : f32[n, m]
  store z[n, m], %zb
}
)",
                          {{DType::f32, {2}, {10, 20}},
                           {DType::f32, {3}, {1, 2, 3}},
                           {DType::f32, {2, 3}},
                           {DType::f32, {3, 2}}})[1]
                .values,
            (Values{9, 19, 8, 18, 7, 17}));
}

const char* const reductions = R"(program test
axis m: parallel_tiles M tile 4
axis n: tiles N tile 2
axis one: whole 1
input x: f32 [M, N]
output sum: f32 [M]
output most: f32 [M]
output least: f32 [M]
{
  %zero = constant 0 : f32[m]
  %lowest = constant -inf : f32[m]
  %highest = constant inf : f32[m]
  %s, %x, %i = loop n {
    tile %t : i32
    carry %s0 = %zero : f32[m]
    carry %x0 = %lowest : f32[m]
    carry %i0 = %highest : f32[m]
    %v = load x[m, n] : f32[m, n]
    %c = index n : i32[n]
    %e = extent n : i32
    %inside = lt %c, %e : i1[n]
    %low = constant -inf : f32
    %high = constant inf : f32
    %sum = reduce_sum %v along n : f32[m]
    %vx = where %inside, %v, %low : f32[m, n]
    %most = reduce_max %vx along n : f32[m]
    %vi = where %inside, %v, %high : f32[m, n]
    %least = reduce_min %vi along n : f32[m]
    %s1 = add %s0, %sum : f32[m]
    %x1 = max %x0, %most : f32[m]
    %i1 = min %i0, %least : f32[m]
    yield %s1, %x1, %i1
  }
  store sum[m], %s
  store most[m], %x
  store least[m], %i
}
)";

TEST(Reference, ReductionsRangeOverTheTrueExtent) {
  for (const ReferenceOptions options : {ReferenceOptions{}, in_tiles}) {
    const auto got = evaluate_text(reductions,
                                   {{DType::f32, {2, 3}, {-1, -2, -3, 5, nan, 7}},
                                    {DType::f32, {2}},
                                    {DType::f32, {2}},
                                    {DType::f32, {2}}},
                                   {}, options);
    EXPECT_EQ(got[0].values[0], -6);
    EXPECT_TRUE(std::isnan(got[0].values[1]));
    EXPECT_EQ(got[1].values, (Values{-1, 7}));
    EXPECT_EQ(got[2].values, (Values{-3, 5}));
  }
}

TEST(Reference, AnEmptyAxisReducesToTheStart) {
  const auto got = evaluate_text(
      reductions, {{DType::f32, {2, 0}}, {DType::f32, {2}}, {DType::f32, {2}}, {DType::f32, {2}}});
  EXPECT_EQ(got[0].values, (Values{0, 0}));
  EXPECT_EQ(got[1].values, (Values{-infinity, -infinity}));
}

TEST(Reference, SumsInStorageAreTakenInF32) {
  std::vector<double> values(4097, 1);
  values[0] = 16777216;  // 2^24: adding one changes nothing in f32
  const std::vector<Array> arrays = {
      {DType::f32, {1, 4097}, values}, {DType::f32, {1}}, {DType::f32, {1}}, {DType::f32, {1}}};
  EXPECT_EQ(evaluate_text(reductions, arrays)[0].values[0], 16777216 + 4096);
  EXPECT_EQ(evaluate_text(reductions, arrays, {}, in_storage)[0].values[0], 16777216);
}

TEST(Reference, ProductsAccumulate) {
  const std::string text = R"(program test
axis m: whole 2
axis k: whole 2
axis n: whole 2
input a: f16 [2, 2]
input b: f16 [2, 2]
output y: f32 [2, 2]
{
  %a = load a[m, k] : f16[m, k]
  %b = load b[k, n] : f16[k, n]
  %start = constant 100 : f32[m, n]
  %y = dot %a, %b, %start : f32[m, n]
  store y[m, n], %y
}
)";
  for (const ReferenceOptions options : {ReferenceOptions{}, in_storage})
    EXPECT_EQ(evaluate_text(text,
                            {{DType::f16, {2, 2}, {1, 2, 3, 4}},
                             {DType::f16, {2, 2}, {5, 6, 7, 8}},
                             {DType::f32, {2, 2}}},
                            {}, options)[0]
                  .values,
              (Values{119, 122, 143, 150}));
}

TEST(Reference, LoadsThroughAnIndexAreZeroOutside) {
  // y[i] = x[table[i]]: one position a block, the index read from a tensor.
  EXPECT_EQ(evaluate_text(R"(program test
axis i: parallel N
axis d: whole 2
input table: i32 [N]
input x: f32 [P, 2]
output y: f32 [N, 2]
{
  %i = index i : i32
  %page = load table[%i] : i32
  %x = load x[%page, d] : f32[d]
  store y[%i, d], %x
}
)",
                          {{DType::i32, {4}, {1, -1, 0, 2}},
                           {DType::f32, {2, 2}, {1, 2, 3, 4}},
                           {DType::f32, {4, 2}}})[0]
                .values,
            (Values{3, 4, 0, 0, 1, 2, 0, 0}));
}

TEST(Reference, StridesAreThoseOfTheView) {
  const ir::Function f = ir::parse(R"(program test
axis m: parallel_tiles M
axis n: whole 2
input x: f32 [M, 2]
output y: f32 [M, 2]
{
  %x = load x[m, n] : f32[m, n]
  store y[m, n], %x
}
)");
  Array x(DType::f32, {2, 3}, {1, 2, 3, 4, 5, 6}), y(DType::f32, {2, 2});
  TensorView narrow = x.view();
  narrow.shape[1] = 2;  // the strides stay
  EXPECT_EQ(evaluate(f, std::vector{narrow, y.view()}, {})[0].values, (Values{1, 2, 4, 5}));
}

TEST(Reference, WhatNobodyStoresIsNan) {
  const auto got = evaluate_text(R"(program test
axis i: parallel 2
axis n: whole 2
output y: f32 [4, 2]
{
  %i = index i : i32
  %y = constant 1 : f32[n]
  store y[%i, n], %y
}
)",
                                 {{DType::f32, {4, 2}}});
  EXPECT_EQ(got[0].values[3], 1);
  EXPECT_TRUE(std::isnan(got[0].values[4]));
}

// A ring of two slots, tiles copied one iteration ahead, as pipeline_loads leaves it.
const std::string ring = R"(program test
axis i: parallel 1
axis n: tiles N tile 2
input x: f32 [N]
output y: f32 [1]
output last: i32 [1]
channel x: f32 [2, 1] stages 2 by cp_async
{
  %i = index i : i32
  %zero = constant 0 : i32
  %one = constant 1 : i32
  %end = tile_count n : i32
  %none = constant 0 : f32
  %top = sub %end, %one : i32
  %some = ge %top, %zero : i1
  issue x[n], %top, %zero, %some in x
  commit
  %sum, %final, %slot = loop n from %zero to %end descending {
    tile %t : i32
    carry %s = %none : f32
    carry %l = %zero : i32
    carry %slot0 = %zero : i32
    %next = sub %t, %one : i32
    %more = ge %next, %zero : i1
    %slot1 = sub %one, %slot0 : i32
    issue x[n], %next, %slot1, %more in x
    commit
    wait pending 1
    barrier
    %v = read_slot %READ in x : f32[n]
    %part = reduce_sum %v along n by lane : f32
    %double = add %s, %s : f32
    %s1 = add %double, %part : f32
    yield %s1, %t, %slot1
  }
  %whole = combine_partials %sum along n of reduce_sum : f32
  %home = convert %whole : f32
  store y[%i], %home
  store last[%i], %final
}
)";

std::string ring_reading(const std::string& slot) {
  std::string text = ring;
  return text.replace(text.find("READ"), 4, slot);
}

TEST(Reference, CopiesGoThroughSlots) {
  const std::vector<Array> arrays = {
      {DType::f32, {5}, {1, 2, 3, 4, 5}}, {DType::f32, {1}}, {DType::i32, {1}}};
  const auto got = evaluate_text(ring_reading("slot0"), arrays, {}, in_tiles);
  EXPECT_EQ(got[0].values[0], 4 * 5 + 2 * (3 + 4) + (1 + 2));
  EXPECT_EQ(got[1].values[0], 0);  // descending: tile 0 comes last
  // The slot that is being filled holds another tile, and at last one that does not exist.
  EXPECT_TRUE(std::isnan(evaluate_text(ring_reading("slot1"), arrays, {}, in_tiles)[0].values[0]));
}

std::string refusal(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Reference, RefusesArraysThatDoNotFit) {
  const auto with = [](std::vector<Array> arrays, std::vector<ScalarValue> scalars = {1.0f}) {
    return refusal([&] {
      evaluate_text(R"(program test
axis m: parallel_tiles M
parameter scale: f32
input x: f32 [M]
input w: f32 [M, 4]
output y: f32 [M]
{
  %x = load x[m] : f32[m]
  store y[m], %x
}
)",
                    std::move(arrays), std::move(scalars));
    });
  };
  const Array x(DType::f32, {3}), w(DType::f32, {3, 4}), y(DType::f32, {3});
  EXPECT_EQ(with({x, w, y}), "accepted");
  EXPECT_EQ(with({x, w}),
            "test with 2 arrays and 1 numbers\n  why: the program has 3 and 1\n"
            "  try: give them in the order of the program");
  EXPECT_EQ(with({x, w, y}, {ScalarValue(1)}),
            "scale of type i32\n  why: the program takes f32\n  try: convert it");
  EXPECT_EQ(with({w, w, y}),
            "x of type f32 with 2 dimensions\n  why: the program takes f32 with 1\n"
            "  try: convert or reshape it");
  EXPECT_EQ(with({x, Array(DType::f32, {3, 5}), y}),
            "dimension 1 of w is 5 long\n  why: the program takes 4\n"
            "  try: give arrays of one shape");
  EXPECT_EQ(with({x, w, Array(DType::f32, {2})}),
            "dimension 0 of y is 2 long\n  why: another array has M = 3\n"
            "  try: give arrays of one shape");
}

TEST(Reference, RefusesTheWrongTiling) {
  const std::vector<Array> arrays = {
      {DType::f32, {5}, {1, 2, 3, 4, 5}}, {DType::f32, {1}}, {DType::i32, {1}}};
  EXPECT_EQ(refusal([&] { evaluate_text(ring_reading("slot0"), arrays); }),
            "a loop over n with bounds\n  at:  text:18\n  why: bounds count scheduled tiles\n"
            "  try: evaluate with Tiling::scheduled");
  EXPECT_EQ(refusal([&] {
              evaluate_text(R"(program test
axis m: parallel_tiles M
input x: f32 [M]
output y: f32 [M]
{
  %x = load x[m] : f32[m]
  store y[m], %x
}
)",
                            {{DType::f32, {3}}, {DType::f32, {3}}}, {}, in_tiles);
            }),
            "axis m has no tile size\n  why: Tiling::scheduled evaluates tile by tile\n"
            "  try: apply a schedule first, or evaluate with Tiling::whole");
}

}  // namespace
}  // namespace flashcore
