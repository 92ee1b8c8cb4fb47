// Attention as a tile program against the textbook: softmax(q k^T scale) v, row by row.
#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "dsl/ir/builder.h"
#include "tests/runtime/reference/arrays.h"

namespace flashcore {
namespace {

using namespace ir;

constexpr double lowest = -3.4028234663852886e+38;

/// Online softmax over tiles of the keys, causal and aligned to the bottom right, with tiles of the
/// given sizes for Tiling::scheduled.
Function attention(int tile_rows, int tile_cols, bool causal, bool bounded) {
  Function f;
  f.name = "attention";
  f.body = f.add_block();
  Builder b(f, f.body);
  const Extent batch_length("B"), m_length("M"), n_length("N");
  const AxisId batch = f.add_axis({"batch", AxisKind::parallel, batch_length});
  const AxisId rows = f.add_axis({"rows", AxisKind::parallel_tiles, m_length, tile_rows});
  const AxisId cols = f.add_axis({"cols", AxisKind::tiles, n_length, tile_cols});
  const AxisId d = f.add_axis({"d", AxisKind::whole, 8, 16});
  const ParameterId scale_id = f.add_parameter({"scale", DType::f32, true});
  const TensorId q = f.add_tensor({"q", DType::bf16, {batch_length, m_length, 8}});
  const TensorId k = f.add_tensor({"k", DType::bf16, {batch_length, n_length, 8}});
  const TensorId v = f.add_tensor({"v", DType::bf16, {batch_length, n_length, 8}});
  const TensorId o = f.add_tensor({"o", DType::bf16, {batch_length, m_length, 8}, true});
  const TensorId lse = f.add_tensor({"lse", DType::f32, {batch_length, m_length}, true});

  const ValueId at = b.index(batch), scale = b.parameter(scale_id);
  const ValueId query = b.load(q, {{{}, at}, {rows, {}}, {d, {}}});
  const ValueId start = b.constant(lowest, DType::f32, {rows});
  const ValueId none = b.constant(0, DType::f32, {rows});
  const ValueId nothing = b.constant(0, DType::f32, {rows, d});
  const ValueId shift = b.sub(b.extent(cols), b.extent(rows));
  Op loop{.code = OpCode::loop, .operands = {start, none, nothing}, .axis = cols};
  ValueId full_end;
  if (bounded) {
    // Causal: the last key that the last row sees, and the tiles that every row sees whole.
    const auto tiles = [&](ValueId keys) {
      return b.elementwise(OpCode::div, {keys, b.constant(tile_cols, DType::i32)});
    };
    const ValueId first = b.add(b.tile_begin(rows), shift);
    const ValueId last = b.add(first, b.constant(tile_rows + tile_cols - 1, DType::i32));
    const ValueId zero = b.constant(0, DType::i32);
    const ValueId end = b.elementwise(
        OpCode::max, {zero, b.elementwise(OpCode::min, {tiles(last), b.tile_count(cols)})});
    const ValueId full =
        b.elementwise(OpCode::max, {zero, tiles(b.add(first, b.constant(1, DType::i32)))});
    full_end = b.elementwise(OpCode::min, {full, end});
    loop.operands.insert(loop.operands.begin(), {zero, end});
    loop.bounds = 2;
    loop.descending = true;
  }

  loop.body = f.add_block();
  const ValueId tile = f.add_argument(loop.body, {DType::i32, {}});
  const ValueId m = f.add_argument(loop.body, {DType::f32, {rows}});
  const ValueId l = f.add_argument(loop.body, {DType::f32, {rows}});
  const ValueId acc = f.add_argument(loop.body, {DType::f32, {rows, d}});
  b.set_block(loop.body);
  const ValueId keys = b.load(k, {{{}, at}, {cols, {}}, {d, {}}});
  ValueId s = b.mul(b.dot(query, b.transpose(keys)), scale);
  const ValueId minus_infinity = b.constant(-std::numeric_limits<double>::infinity(), DType::f32);
  // What mask_tails adds; the language promises it where tiles are whole.
  s = b.elementwise(OpCode::where, {b.elementwise(OpCode::lt, {b.index(cols), b.extent(cols)}), s,
                                    minus_infinity});
  if (causal) {
    ValueId seen = b.elementwise(OpCode::ge, {b.add(b.index(rows), shift), b.index(cols)});
    // Where the bounds of the full tiles are wrong, the result is.
    if (bounded)
      seen = b.elementwise(OpCode::logical_or, {b.elementwise(OpCode::lt, {tile, full_end}), seen});
    s = b.elementwise(OpCode::where, {seen, s, minus_infinity});
  }
  const ValueId m1 = b.elementwise(OpCode::max, {m, b.reduce(OpCode::reduce_max, s, cols)});
  const ValueId p = b.elementwise(OpCode::exp, {b.sub(s, m1)});
  const ValueId decay = b.elementwise(OpCode::exp, {b.sub(m, m1)});
  const ValueId l1 = b.add(b.mul(l, decay), b.reduce(OpCode::reduce_sum, p, cols));
  const ValueId values = b.load(v, {{{}, at}, {cols, {}}, {d, {}}});
  const ValueId acc1 = b.dot(b.cast(p, DType::bf16), values, b.mul(acc, decay));
  b.append({.code = OpCode::yield, .operands = {m1, l1, acc1}}, {});

  b.set_block(f.body);
  const OpId done = b.append(loop, {f[m].type, f[l].type, f[acc].type});
  const std::vector<ValueId> r = f[done].results;
  const ValueId empty = b.elementwise(OpCode::eq, {r[1], b.constant(0, DType::f32)});
  const ValueId mean = b.elementwise(
      OpCode::where, {empty, b.constant(0, DType::f32), b.elementwise(OpCode::div, {r[2], r[1]})});
  b.store(o, {{{}, at}, {rows, {}}, {d, {}}}, b.cast(mean, DType::bf16));
  b.store(lse, {{{}, at}, {rows, {}}}, b.add(r[0], b.elementwise(OpCode::log, {r[1]})));
  verify(f);
  return f;
}

struct Case {
  std::int64_t batch = 2, m, n;
  bool causal;
  double scale = 0.5;
  std::vector<double> q, k, v;

  Case(std::int64_t m, std::int64_t n, bool causal) : m(m), n(n), causal(causal) {
    std::mt19937 random(7);
    std::normal_distribution<double> normal;
    const auto fill = [&](std::vector<double>& values, std::int64_t rows) {
      for (std::int64_t i = 0; i < batch * rows * 8; ++i)
        values.push_back(round_to(DType::bf16, normal(random)));
    };
    fill(q, m), fill(k, n), fill(v, n);
  }

  std::vector<ReferenceOutput> run(const Function& f, ReferenceOptions options = {}) const {
    Array arrays[] = {{DType::bf16, {batch, m, 8}, q},
                      {DType::bf16, {batch, n, 8}, k},
                      {DType::bf16, {batch, n, 8}, v},
                      {DType::bf16, {batch, m, 8}},
                      {DType::f32, {batch, m}}};
    std::vector<TensorView> views;
    for (Array& array : arrays) views.push_back(array.view());
    return evaluate(f, views, std::vector<ScalarValue>{static_cast<float>(scale)}, options);
  }

  /// The textbook. Returns the largest difference in o; lse must agree as well.
  double compare(const std::vector<ReferenceOutput>& got, double tolerance) const {
    double worst = 0;
    for (std::int64_t row = 0; row < batch * m; ++row) {
      const std::int64_t b = row / m, i = row % m;
      std::vector<double> weights;
      double sum = 0, out[8] = {};
      for (std::int64_t j = 0; j < n; ++j) {
        double score = 0;
        for (int x = 0; x < 8; ++x) score += q[row * 8 + x] * k[(b * n + j) * 8 + x];
        weights.push_back(causal && j > i + n - m ? 0 : std::exp(score * scale));
        sum += weights.back();
      }
      for (std::int64_t j = 0; j < n; ++j)
        for (int x = 0; x < 8; ++x)
          if (sum > 0) out[x] += weights[j] / sum * v[(b * n + j) * 8 + x];
      for (int x = 0; x < 8; ++x)
        worst = std::max(worst, std::abs(got[0].values[row * 8 + x] - out[x]));
      const double lse = got[1].values[row];
      if (sum > 0)
        EXPECT_NEAR(lse, std::log(sum), tolerance) << "row " << row;
      else
        EXPECT_EQ(lse, -std::numeric_limits<double>::infinity()) << "row " << row;
    }
    EXPECT_LE(worst, tolerance);
    return worst;
  }
};

TEST(ReferenceAttention, IsTheTextbook) {
  const Case c(5, 7, false);
  const std::vector<ReferenceOutput> got = c.run(attention(64, 64, false, false));
  ASSERT_EQ(got.size(), 2u);
  EXPECT_EQ(got[0].name, "o");
  EXPECT_EQ(got[0].shape, (std::vector<std::int64_t>{2, 5, 8}));
  c.compare(got, 1e-12);
}

TEST(ReferenceAttention, CausalRowsWithoutAKeyAreZero) {
  const Case c(9, 6, true);  // the first three rows see nothing
  const std::vector<ReferenceOutput> got = c.run(attention(64, 64, true, false));
  c.compare(got, 1e-12);
  EXPECT_EQ(got[0].values[0], 0);
}

TEST(ReferenceAttention, TilesOfAnySizeGiveTheSame) {
  for (const bool causal : {false, true})
    for (const auto& [m, n] : {std::pair{13, 29}, {32, 32}, {29, 13}, {1, 70}})
      for (const auto& [rows, cols] : {std::pair{16, 8}, {8, 32}, {64, 64}}) {
        SCOPED_TRACE(testing::Message()
                     << causal << " " << m << "x" << n << " in " << rows << "x" << cols);
        const Case c(m, n, causal);
        c.compare(c.run(attention(rows, cols, causal, false), in_tiles), 1e-12);
        if (causal) c.compare(c.run(attention(rows, cols, true, true), in_tiles), 1e-12);
      }
}

TEST(ReferenceAttention, StorageLosesWhatBf16Loses) {
  const Case c(40, 40, false);
  const double lost = c.compare(c.run(attention(64, 64, false, false), in_storage), 0.05);
  EXPECT_GT(lost, 1e-4);  // an exact evaluation would not see the rounding that kernels have
}

TEST(ReferenceAttention, WrongBoundsShow) {
  // A mask that the bounds claim to hold everywhere is not applied.
  Function f = attention(8, 8, true, true);
  for_each_op(f, f.body, [](Op& op, BlockId) {
    if (op.code == OpCode::loop) op.operands[2] = op.operands[3];
  });
  const Case c(16, 16, true);
  EXPECT_NE(c.run(f, in_tiles)[0].values, c.run(attention(8, 8, true, true), in_tiles)[0].values);
}

}  // namespace
}  // namespace flashcore
