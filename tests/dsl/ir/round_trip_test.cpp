// print() and parse() are each other's inverse, for programs as built and as passes leave them.
#include <cmath>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "dsl/ir/builder.h"
#include "dsl/ir/parse.h"
#include "dsl/ir/print.h"
#include "dsl/ir/verify.h"

namespace flashcore::ir {
namespace {

/// Text in the canonical form comes back unchanged.
void expect_canonical(const std::string& text) {
  const Function f = parse(text);
  EXPECT_EQ(print(f), text);
  EXPECT_NO_THROW(verify(f));
}

TEST(RoundTrip, AProgramAsBuilt) {
  expect_canonical(R"(program attention_forward
axis batch: parallel B
axis rows: parallel_tiles Sq
axis cols: tiles Sk
axis d: whole 128
parameter scale: f32 positive
parameter window: i32
input q: bf16 [B, Sq, 128]
input k: bf16 [B, Sk, 128]
input v: bf16 [B, Sk, 128]
output o: bf16 [B, Sq, 128]
{
  %batch = index batch : i32
  %scale = parameter scale : f32
  %window = parameter window : i32
  %query = load q[%batch, rows, d] : bf16[rows, d]
  %lowest = constant -3.4028234663852886e+38 : f32[rows]
  %0 = constant 0 : f32[rows]
  %1 = constant 0 : f32[rows, d]
  %2 = constant -inf : f32
  %m, %l, %acc = loop cols {
    tile %cols_tile : i32
    carry %m_1 = %lowest : f32[rows]
    carry %l_1 = %0 : f32[rows]
    carry %acc_1 = %1 : f32[rows, d]
    %key = load k[%batch, cols, d] : bf16[cols, d]
    %3 = transpose %key : bf16[d, cols]
    %4 = dot %query, %3 : f32[rows, cols]
    %5 = mul %4, %scale : f32[rows, cols]
    %6 = index rows : i32[rows]
    %7 = index cols : i32[cols]
    %8 = sub %6, %7 : i32[rows, cols]
    %9 = le %8, %window : i1[rows, cols]
    %10 = where %9, %5, %2 : f32[rows, cols]
    %11 = reduce_max %10 along cols : f32[rows]
    %12 = max %m_1, %11 : f32[rows]
    %13 = sub %10, %12 : f32[rows, cols]
    %p = exp %13 : f32[rows, cols]
    %14 = sub %m_1, %12 : f32[rows]
    %decay = exp %14 : f32[rows]
    %15 = reduce_sum %p along cols : f32[rows]
    %16 = fma %l_1, %decay, %15 : f32[rows]
    %17 = load v[%batch, cols, d] : bf16[cols, d]
    %18 = mul %acc_1, %decay : f32[rows, d]
    %19 = cast %p : bf16[rows, cols]
    %20 = dot %19, %17, %18 : f32[rows, d]
    yield %12, %16, %20
  }
  %21 = div %acc, %l : f32[rows, d]
  %22 = cast %21 : bf16[rows, d]
  store o[%batch, rows, d], %22
}
)");
}

TEST(RoundTrip, EverythingThatPassesAdd) {
  expect_canonical(R"(program scores
axis head: parallel 8
axis rows: parallel_tiles Sq tile 128 descending
axis cols: tiles Sk tile 64
axis d: whole 128 tile 128
parameter scale: f32
input q: bf16 [8, Sq, 128]
input k: bf16 [8, Sk, 128]
output o: f32 [8, Sq]
channel query: bf16 [128, 128] stages 1 by cp_async
channel k: bf16 [64, 128] stages 2 by cp_async at 32768
{
  %0 = index head : i32
  issue q[%0, rows, d] in query
  commit
  %1 = constant 1 : i32
  %2 = tile_count cols : i32
  %3 = lt %1, %2 : i1
  issue k[%0, cols, d], %1, %1, %3 in k
  commit
  wait pending 1
  barrier
  %query = read_slot in query : bf16[rows, d] @ shared
  %4 = convert %query : bf16[rows, d] @ operand rows(4w 2f 2s*8 8l/4) d(8f 4s 4l*4)
  %5 = tile_begin rows : i32
  %6 = extent cols : i32
  %start = constant 0 : f32[rows] @ rows(4w 2f 2s*8 8l/4)
  %infinity = constant inf : f32 @ registers
  %l = loop cols from %0 to %2 descending {
    tile %tile : i32
    carry %l_1 = %start : f32[rows] @ rows(4w 2f 2s*8 8l/4)
    wait pending 0
    %7 = read_slot %1 in k : bf16[cols, d] @ shared
    %8 = transpose %7 : bf16[d, cols] @ shared
    %scores = dot %4, %8 : f32[rows, cols] @ rows(4w 2f 2s*8 8l/4) cols(8f 2s 4l*2)
    %9 = index cols : i32[cols] @ cols(8f 2s 4l*2)
    %10 = lt %9, %6 : i1[cols] @ cols(8f 2s 4l*2)
    %11 = where %10, %scores, %infinity : f32[rows, cols] @ rows(4w 2f 2s*8 8l/4) cols(8f 2s 4l*2)
    %12 = reduce_sum %11 along cols by lane : f32[rows] @ rows(4w 2f 2s*8 8l/4)
    %13 = add %l_1, %12 : f32[rows] @ rows(4w 2f 2s*8 8l/4)
    yield %13
  }
  %14 = combine_partials %l along cols of reduce_sum : f32[rows] @ rows(4w 2f 2s*8 8l/4)
  %15 = convert %14, %1 in query : f32[rows] @ shared
  store o[%0, rows], %15
}
)");
}

TEST(RoundTrip, ALoopWhoseResultsLiveElsewhere) {
  expect_canonical(R"(program total
axis cols: tiles N tile 64
axis one: whole 1
input x: f32 [N, 1]
output y: f32 [1]
{
  %0 = constant 0 : f32[one]
  %1 = constant 0 : i32
  %2 = tile_count cols : i32
  %sum = loop cols from %1 to %2 : f32[one] @ one() {
    tile %3 : i32
    carry %sum_1 = %0 : f32[one]
    %4 = load x[cols, one] : f32[cols, one]
    %5 = reduce_sum %4 along cols : f32[one]
    %6 = add %sum_1, %5 : f32[one]
    yield %6
  }
  store y[one], %sum
}
)");
}

TEST(RoundTrip, ALoopThatCarriesNothing) {
  expect_canonical(R"(program copy
axis cols: tiles N
input x: f32 [N]
output y: f32 [N]
{
  loop cols descending unordered {
    tile %0 : i32
    %1 = load x[cols] : f32[cols]
    store y[cols], %1
    yield
  }
}
)");
}

TEST(RoundTrip, ATileInSeveralBoxes) {
  expect_canonical(R"(program pages
axis rows: parallel_tiles N tile 32
axis d: whole 16 tile 16
input x: bf16 [P, 16, 16]
input table: i32 [W] gathered
output y: bf16 [N, 16]
channel x: bf16 [32, 16] stages 1 by tma
{
  %0 = constant 16 : i32
  issue x[by, by rows, d] in x boxes of 8 rows {
    row %row : i32
    %1 = tile_begin rows : i32
    %2 = add %1, %row : i32
    %3 = div %2, %0 : i32
    %page = gather table[%3] : i32
    %4 = mod %2, %0 : i32
    yield %page, %4
  }
  %x = wait in x : bf16[rows, d] @ shared
  store y[rows, d], %x
}
)");
}

TEST(RoundTrip, RegionsBehindACondition) {
  expect_canonical(R"(program first_of_many
axis rows: parallel_tiles M tile 64
axis cols: tiles N tile 64
input x: f32 [M, N]
output y: f32 [M]
buffer cols_tiles: i32 [1, 8] stages 1
{
  %0 = constant 0 : i32
  %1 = constant 2 : i32
  %2 = tile_count cols : i32
  %any = gt %2, %0 : i1
  %nothing = constant 0 : f32[rows]
  %y, %n = if %any : f32[rows] @ rows(4w 2s*8 8l/4), i32 {
    enter %0 along cols
    %full = tile_is_full %0 in cols_tiles : i1
    if %full {
      yield
    }
    %x = load x[rows, cols] : f32[rows, cols]
    %sum = reduce_sum %x along cols : f32[rows]
    %one = constant 1 : f32
    %ones = eq %sum, %one : i1[rows]
    %all = all_lanes %ones : i1
    %twice = loop from %0 to %1 {
      count %side : i32
      carry %so_far = %sum : f32[rows]
      %next = add %so_far, %sum : f32[rows]
      yield %next
    }
    yield %twice, %1
  } else {
    yield %nothing, %0
  }
  store y[rows], %y
}
)");
}

class Print : public testing::Test {
 protected:
  Print() : b(f, {}) {
    f.name = "test";
    f.body = f.add_block();
    b.set_block(f.body);
  }
  /// The lines of the body.
  std::string body() {
    const std::string text = print(f);
    const std::size_t begin = text.find("{\n") + 2;
    EXPECT_EQ(print(parse(text)), text);
    return text.substr(begin, text.size() - begin - 2);
  }

  Function f;
  Builder b;
};

TEST_F(Print, NumbersComeBackExactly) {
  const double numbers[] = {0.1,
                            -0.0,
                            1e300,
                            5e-324,
                            3,
                            std::numeric_limits<double>::infinity(),
                            -std::numeric_limits<double>::infinity(),
                            std::nan("")};
  for (const double number : numbers) b.constant(number, DType::f32);
  EXPECT_EQ(body(),
            "  %0 = constant 0.1 : f32\n"
            "  %1 = constant -0 : f32\n"
            "  %2 = constant 1e+300 : f32\n"
            "  %3 = constant 5e-324 : f32\n"
            "  %4 = constant 3 : f32\n"
            "  %5 = constant inf : f32\n"
            "  %6 = constant -inf : f32\n"
            "  %7 = constant nan : f32\n");
  const Function back = parse(print(f));
  for (std::size_t i = 0; i + 1 < std::size(numbers); ++i) {
    EXPECT_EQ(back.ops[i].number, numbers[i]);
    EXPECT_EQ(std::signbit(back.ops[i].number), std::signbit(numbers[i]));
  }
  EXPECT_TRUE(std::isnan(back.ops[7].number));
}

TEST_F(Print, NamesBecomeUniqueWords) {
  for (const char* name : {"m", "m", "m_1", "row max", "2nd", ""})
    f[b.constant(0, DType::f32)].name = name;
  EXPECT_EQ(body(),
            "  %m = constant 0 : f32\n"
            "  %m_1 = constant 0 : f32\n"
            "  %m_1_1 = constant 0 : f32\n"
            "  %row_max = constant 0 : f32\n"
            "  %_2nd = constant 0 : f32\n"
            "  %0 = constant 0 : f32\n");
}

TEST_F(Print, OneOpAndOneValueReadAsInTheWhole) {
  const ValueId first = b.constant(1, DType::f32), second = b.constant(2, DType::f32);
  f[second].name = "two";
  const ValueId sum = b.add(first, second);
  EXPECT_EQ(print(f, *f.definition(sum)), "%1 = add %0, %two : f32");
  EXPECT_EQ(print(f, second), "%two");
}

TEST_F(Print, ABrokenFunctionCanBeLookedAt) {
  f.add_op({.code = OpCode::add, .operands = {ValueId{}}}, {{DType::f32, {}}});
  f[f.body].ops.push_back(OpId(0));
  f.add_op({.code = OpCode::loop, .operands = {ValueId(7)}, .body = f.add_block()}, {});
  f[f.body].ops.push_back(OpId(1));
  EXPECT_EQ(print(f), "program test\n{\n  %0 = add %? : f32\n  loop {\n  }\n}\n");
}

}  // namespace
}  // namespace flashcore::ir
