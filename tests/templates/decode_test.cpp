// Decoding on the emulator: both programs against the reference, and together against attention
// written out in double precision. The output may be off by no more than three times what a plain
// evaluation in 16 bits is off by.
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "dsl/error.h"
#include "dsl/expression.h"
#include "dsl/launch_number.h"
#include "templates/attention_decode.h"
#include "tests/templates/support/decode_run.h"

namespace flashcore {
namespace {

bool is_causal(const Site& s) { return s.kv_idx <= s.q_idx + s.kv_len - s.q_len; }

AttentionSpec grouped(int head_dim, int heads, int kv_heads) {
  return {.head_dim = head_dim, .heads = heads, .kv_heads = kv_heads, .lse = true};
}

/// Under the first schedule of every target, or under all of them.
void expect_right(DecodeSpec spec, DecodeRun problem, bool all_schedules = false) {
  problem.heads = spec.attention.heads;
  problem.kv_heads = spec.attention.kv_heads;
  for (const Target& target : all_targets()) {
    SCOPED_TRACE(fmt::format("{}: {} rows, {} keys, {} splits, pages of {}", target.name,
                             problem.q_len, problem.kv_len, problem.splits, spec.page_size));
    spec.attention.dtype = target.bf16 ? DType::bf16 : DType::f16;
    EXPECT_EQ(compare_decode(spec, target, problem, all_schedules), "");
  }
}

TEST(AttentionDecode, IsRightForEveryLengthAndNumberOfSplits) {
  for (const auto& [keys, splits] :
       {std::pair{1, 1}, {1, 3}, {127, 2}, {128, 2}, {129, 2}, {500, 1}, {515, 3}, {300, 7}})
    expect_right({grouped(64, 4, 2)}, {.batch = 2, .kv_len = keys, .splits = splits});
}

TEST(AttentionDecode, IsRightForEveryGroup) {
  for (const int group : {1, 3, 4, 8})
    for (const int rows : {1, 5})
      expect_right({grouped(64, 2 * group, 2)}, {.q_len = rows, .kv_len = 200, .splits = 2});
}

TEST(AttentionDecode, RowsSeeTheirPastInChunks) {
  for (const int rows : {2, 3, 16}) {
    AttentionSpec spec = grouped(64, 4, 1);
    spec.mask = causal();
    expect_right({spec}, {.q_len = rows, .kv_len = 270, .splits = 3, .visible = is_causal});
    // The first rows stand before all keys.
    expect_right({spec}, {.q_len = rows, .kv_len = 1, .splits = 2, .visible = is_causal});
  }
}

TEST(AttentionDecode, IsRightThroughPages) {
  for (const int page_size : {1, 16, 64}) {
    AttentionSpec spec = grouped(64, 4, 2);
    spec.kv_lens = true;
    spec.mask = causal();
    expect_right({spec, page_size}, {.batch = 4,
                                     .q_len = 2,
                                     .kv_len = 300,
                                     .splits = 3,
                                     .kv_lens = {300, 0, 1, 157},
                                     .visible = is_causal});
  }
}

TEST(AttentionDecode, IsRightForPaddedSequencesInBothLayouts) {
  for (const TensorLayout layout : {TensorLayout::bhsd, TensorLayout::bshd}) {
    AttentionSpec spec = grouped(64, 6, 2);
    spec.layout = layout;
    spec.kv_lens = spec.q_lens = true;
    expect_right({spec}, {.batch = 3,
                          .q_len = 4,
                          .kv_len = 260,
                          .splits = 2,
                          .q_lens = {4, 2, 0},
                          .kv_lens = {0, 260, 131}});
  }
}

TEST(AttentionDecode, IsRightForEveryHeadDimUnderEverySchedule) {
  for (const auto& [dim, value_dim] : {std::pair{40, 0}, {96, 0}, {128, 0}, {192, 128}, {256, 0}}) {
    AttentionSpec spec = grouped(dim, 4, 1);
    spec.head_dim_v = value_dim;
    expect_right({spec}, {.q_len = 2, .kv_len = 150, .splits = 2}, dim != 96);
  }
}

TEST(AttentionDecode, ExpressionsSeeThePositionsOfTheSequenceAndItsHeads) {
  AttentionSpec spec = grouped(64, 6, 2);
  spec.mask = Mask("kv_idx > q_idx + kv_len - q_len - 90 | kv_idx < 3");
  spec.score = Score("score - 0.01 * h * (kv_len - kv_idx) + 0.1 * q_idx");
  spec.sink = Sink("0.5 * h - q_idx");
  expect_right({spec}, {.batch = 2,
                        .q_len = 3,
                        .kv_len = 290,
                        .splits = 3,
                        .visible =
                            [](const Site& s) {
                              return s.kv_idx > s.q_idx + s.kv_len - s.q_len - 90 || s.kv_idx < 3;
                            },
                        .score =
                            [](const Site& s) {
                              return s.score - 0.01 * s.h * (s.kv_len - s.kv_idx) + 0.1 * s.q_idx;
                            },
                        .sink = [](const Site& s) { return 0.5 * s.h - s.q_idx; }});
}

TEST(AttentionDecode, ScoresOfAnySizeHaveTheirMaximumAcrossSplits) {
  AttentionSpec spec = grouped(64, 4, 2);
  spec.large_scores = true;
  for (const double spread : {1., 1e6})
    expect_right({spec}, {.kv_len = 400, .splits = 3, .spread = spread});
}

// A split of low scores only: the weights of the splits that do not exist stay finite.
TEST(AttentionDecode, VeryLowScoresHaveWeights) {
  AttentionSpec spec = grouped(64, 2, 1);
  spec.score = Score("score - 1000");
  expect_right({spec},
               {.kv_len = 200, .splits = 2, .score = [](const Site& s) { return s.score - 1000; }});
}

TEST(AttentionDecode, RefusesWhatItDoesNotCompute) {
  const auto refusal = [](const DecodeSpec& spec) -> std::string {
    try {
      attention_decode_split(spec);
    } catch (const SpecError& error) {
      return error.what();
    }
    return "";
  };
  AttentionSpec packed = grouped(64, 4, 2), floats = packed;
  packed.layout = TensorLayout::thd;
  floats.dtype = DType::f32;
  EXPECT_EQ(refusal({packed}),
            "decoding with layout thd\n"
            "  why: a block finds its keys by its sequence, not by a position\n"
            "  try: layout bhsd or bshd, with kv_lens for sequences of different lengths");
  EXPECT_EQ(refusal({floats}),
            "decoding with dtype f32\n"
            "  why: its products take bf16 and f16 operands\n"
            "  try: dtype bf16 or f16, or attention_forward");
  EXPECT_EQ(refusal({grouped(64, 4, 2), 16}),
            "pages without kv_lens\n"
            "  why: a table of pages does not say where a sequence ends\n"
            "  try: kv_lens = true");
  EXPECT_EQ(refusal({grouped(64, 4, 2), -1}),
            "pages of -1 keys\n"
            "  why: a page has at least one\n"
            "  try: 0 for contiguous keys");
}

std::int64_t number_of(const std::string& text, const std::map<std::string, std::int64_t>& named) {
  std::vector<std::string> names;
  std::vector<std::int64_t> values;
  for (const auto& [name, value] : named) {
    names.push_back(name);
    values.push_back(value);
  }
  return NumberFormula({"splits", text}, names).evaluate(values);
}

TEST(DecodeSplits, FillTheMultiprocessorsOnce) {
  // Eight heads of keys: 16 blocks each, which is one a multiprocessor.
  EXPECT_EQ(decode_splits({.batch = 1, .kv_heads = 8, .keys = 32768, .multiprocessors = 132}), 16);
  EXPECT_EQ(decode_splits({.batch = 1, .kv_heads = 8, .keys = 4096, .multiprocessors = 132}), 16);
  // No split without keys.
  EXPECT_EQ(decode_splits({.batch = 1, .kv_heads = 8, .keys = 300, .multiprocessors = 132}), 3);
  EXPECT_EQ(decode_splits({.batch = 1, .kv_heads = 8, .keys = 0, .multiprocessors = 132}), 1);
  // Enough blocks without splits.
  EXPECT_EQ(decode_splits({.batch = 64, .kv_heads = 8, .keys = 8192, .multiprocessors = 132}), 1);
  EXPECT_EQ(decode_splits({.batch = 16, .kv_heads = 8, .keys = 4096, .multiprocessors = 132}), 1);
  // Two blocks a multiprocessor where they look up pages, unless both would have next to nothing.
  EXPECT_EQ(decode_splits(
                {.batch = 1, .kv_heads = 8, .keys = 32768, .multiprocessors = 132, .paged = true}),
            33);
  EXPECT_EQ(decode_splits(
                {.batch = 1, .kv_heads = 8, .keys = 4096, .multiprocessors = 132, .paged = true}),
            16);
  // Blocks that fill little more than half: more splits, of which the last wave loses less.
  EXPECT_GT(decode_splits({.batch = 9, .kv_heads = 8, .keys = 8192, .multiprocessors = 132}), 1);
}

/// The text of a number evaluates to what the function says.
TEST(DecodeSplits, AreTheSameAsAnExpression) {
  for (const int page_size : {0, 16})
    for (const int batch : {1, 2, 9, 17, 64, 200})
      for (const int rows : {1, 3, 16})
        for (const int keys : {0, 16, 4096, 32768, 131072}) {
          DecodeSpec spec{grouped(64, 32, 8), page_size};
          spec.attention.kv_lens = page_size > 0;
          const std::string text = decode_splits_text(spec, 16);
          const DecodeProblem problem{.batch = batch,
                                      .kv_heads = 8,
                                      .row_tiles = (rows * 4 + 15) / 16,
                                      .keys = keys,
                                      .multiprocessors = 132,
                                      .paged = page_size > 0};
          EXPECT_EQ(number_of(text, {{"B", batch},
                                     {"Sq", rows},
                                     {"Sk", keys},
                                     {"max_pages", keys / 16},
                                     {"multiprocessors", 132}}),
                    decode_splits(problem))
              << text;
        }
}

TEST(SplittingPays, WhereItWasMeasuredFaster) {
  constexpr int h200 = 132;
  // Few heads of one sequence leave most multiprocessors without keys.
  EXPECT_TRUE(splitting_pays(1, 32, 8, 1, 512, h200));
  EXPECT_TRUE(splitting_pays(1, 32, 8, 1, 32768, h200));
  EXPECT_TRUE(splitting_pays(1, 32, 32, 64, 8192, h200));
  // Heads of a group share what they read.
  EXPECT_TRUE(splitting_pays(64, 32, 8, 1, 8192, h200));
  EXPECT_TRUE(splitting_pays(64, 32, 8, 16, 1024, h200));
  // Blocks for every head fill the GPU anyway, and wgmma multiplies more rows in the same time.
  EXPECT_FALSE(splitting_pays(8, 32, 32, 64, 2048, h200));
  EXPECT_FALSE(splitting_pays(16, 32, 32, 16, 1024, h200));
  EXPECT_FALSE(splitting_pays(2, 32, 32, 64, 4096, h200));
  // More rows than a tile has, and keys that one block reads as fast.
  EXPECT_FALSE(splitting_pays(1, 32, 8, 17, 32768, h200));
  EXPECT_FALSE(splitting_pays(1, 32, 8, 1, 511, h200));
}

}  // namespace
}  // namespace flashcore
