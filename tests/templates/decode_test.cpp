// Decoding on the emulator: both programs against the reference, and together against attention
// written out in double precision. The output may be off by no more than three times what a plain
// evaluation in 16 bits is off by.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "codegen/why_not.h"
#include "dsl/error.h"
#include "dsl/expression.h"
#include "dsl/launch_number.h"
#include "templates/decode_choice.h"
#include "tests/templates/support/decode_run.h"

namespace flashcore {
namespace {

bool is_causal(const Site& s) { return s.kv_idx <= s.q_idx + s.kv_len - s.q_len; }

/// The last `window` keys up to a row's own.
auto sees_window(int window) {
  return [window](const Site& s) {
    return is_causal(s) && s.kv_idx > s.q_idx + s.kv_len - s.q_len - window;
  };
}

AttentionSpec grouped(int head_dim, int heads, int kv_heads) {
  return {.head_dim = head_dim, .heads = heads, .kv_heads = kv_heads, .lse = true};
}

AttentionSpec in_pages(AttentionSpec spec, int page_size) {
  spec.page_size = page_size;
  spec.kv_lens = spec.kv_lens || page_size > 0;
  return spec;
}

/// Under the first schedule of every target, or under all of them; tiles of many rows on one target
/// with wgmma and one without.
void expect_right(DecodeSpec spec, DecodeRun problem, bool all_schedules = false) {
  problem.heads = spec.attention.heads;
  problem.kv_heads = spec.attention.kv_heads;
  std::set<std::string> have_run;
  for (const Target& target : all_targets()) {
    if (spec.rows != DecodeRows::packed && target.name != "sm_80" && target.name != "sm_90a")
      continue;
    SCOPED_TRACE(fmt::format("{}: {} rows, {} keys, {} splits, pages of {}", target.name,
                             problem.q_len, problem.kv_len, problem.splits,
                             spec.attention.page_size));
    spec.attention.dtype = target.bf16 ? DType::bf16 : DType::f16;
    const auto kernels = decode_kernels(spec, target, problem.q_len, all_schedules);
    if (!have_run.insert(text_of(kernels)).second) continue;
    EXPECT_EQ(compare_decode(kernels, spec, problem), "");
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
    AttentionSpec spec = in_pages(grouped(64, 4, 2), page_size);
    spec.mask = causal();
    expect_right({spec}, {.batch = 4,
                          .q_len = 2,
                          .kv_len = 300,
                          .splits = 3,
                          .kv_lens = {300, 0, 1, 157},
                          .visible = is_causal});
  }
}

// Pages of multiples of eight keys come by the copy engine, whose producer looks them up; others row by row.
TEST(AttentionDecode, IsRightThroughPagesInTilesOfManyRows) {
  AttentionSpec spec = grouped(64, 2, 1);
  spec.mask = causal();
  DecodeRun problem{.batch = 3,
                    .q_len = 70,
                    .kv_len = 300,
                    .splits = 2,
                    .kv_lens = {300, 0, 157},
                    .visible = is_causal};
  expect_right({in_pages(spec, 16), DecodeRows::of_head}, problem);
  expect_right({in_pages(spec, 64), DecodeRows::of_head}, problem);
  expect_right({in_pages(spec, 256), DecodeRows::packed_in_registers}, problem);
  // Splits begin at the first key of a window, rounded to whole tiles.
  spec.mask = Mask("kv_idx <= q_idx + kv_len - q_len & kv_idx > q_idx + kv_len - q_len - 90");
  problem.visible = sees_window(90);
  expect_right({in_pages(spec, 64), DecodeRows::packed_in_registers}, problem);
}

TEST(AttentionDecode, PagesOfMultiplesOfEightKeysComeByTheCopyEngine) {
  const AttentionSpec spec = grouped(128, 32, 8);
  const Target& target = find_target("sm_90a");
  for (const auto& [page_size, by_engine] :
       {std::pair{256, true}, {64, true}, {48, true}, {16, true}, {12, false}, {1, false}}) {
    const DecodeSpec decode{in_pages(spec, page_size), DecodeRows::of_head};
    const Program program = attention_decode_split(decode);
    bool any = false;
    for (const Schedule& schedule : attention_decode_split_schedules(decode, target, 64))
      any |= schedule.copy == CopyInstruction::tma && why_not(program, schedule, target).empty();
    EXPECT_EQ(any, by_engine) << page_size;
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

// Tiles of many rows: those of one head, and a group's by an operand in registers.
TEST(AttentionDecode, IsRightForTilesOfManyRows) {
  for (const DecodeRows of : {DecodeRows::of_head, DecodeRows::packed_in_registers})
    for (const int group : {1, 4})
      for (const auto& [rows, keys, splits] :
           {std::tuple{1, 200, 2}, {33, 300, 3}, {70, 515, 2}, {130, 260, 1}, {70, 515, 4}}) {
        AttentionSpec spec = grouped(64, 2 * group, 2);
        spec.mask = causal();
        expect_right({.attention = spec, .rows = of, .combines_tiles = rows > 33},
                     {.q_len = rows, .kv_len = keys, .splits = splits, .visible = is_causal});
      }
}

TEST(AttentionDecode, IsRightForTilesOfManyRowsUnderEverySchedule) {
  for (const auto& [dim, value_dim] : {std::pair{40, 0}, {128, 0}, {192, 128}, {256, 0}})
    for (const DecodeRows of : {DecodeRows::of_head, DecodeRows::packed_in_registers}) {
      // The query of wider heads leaves too few registers, so that no call has it there.
      if (of == DecodeRows::packed_in_registers && dim > 128) continue;
      AttentionSpec spec = grouped(dim, 4, 1);
      spec.head_dim_v = value_dim;
      spec.mask = causal();
      expect_right({.attention = spec, .rows = of, .combines_tiles = true},
                   {.q_len = 40, .kv_len = 290, .splits = 2, .visible = is_causal}, true);
    }
}

TEST(AttentionDecode, TilesOfManyRowsHaveLengthsAndExpressions) {
  for (const DecodeRows of : {DecodeRows::of_head, DecodeRows::packed_in_registers})
    for (const TensorLayout layout : {TensorLayout::bhsd, TensorLayout::bshd}) {
      AttentionSpec spec = grouped(64, 6, 2);
      spec.layout = layout;
      spec.kv_lens = spec.q_lens = true;
      spec.large_scores = layout == TensorLayout::bshd;
      spec.score = Score("score - 0.01 * h * (kv_len - kv_idx) + 0.1 * q_idx");
      spec.sink = Sink("0.5 * h - q_idx");
      expect_right({.attention = spec, .rows = of, .combines_tiles = true},
                   {.batch = 3,
                    .q_len = 70,
                    .kv_len = 260,
                    .splits = 3,
                    .q_lens = {70, 2, 0},
                    .kv_lens = {0, 260, 131},
                    .score =
                        [](const Site& s) {
                          return s.score - 0.01 * s.h * (s.kv_len - s.kv_idx) + 0.1 * s.q_idx;
                        },
                    .sink = [](const Site& s) { return 0.5 * s.h - s.q_idx; }});
    }
}

TEST(AttentionDecode, SplitsShareTheKeysOfAWindow) {
  for (const DecodeRows of : {DecodeRows::packed, DecodeRows::of_head})
    for (const int rows : {1, 90})
      for (const int window : {70, 1000}) {
        AttentionSpec spec = grouped(64, 4, 1);
        spec.mask = sliding_window(window - 1, 0);
        spec.kv_lens = true;
        expect_right({.attention = spec, .rows = of}, {.batch = 2,
                                                       .q_len = rows,
                                                       .kv_len = 700,
                                                       .splits = 2,
                                                       .kv_lens = {700, 45},
                                                       .visible = sees_window(window)});
      }
}

// The first program says which splits each sequence has.
TEST(AttentionDecode, SplitsAreBalancedOverSequences) {
  const auto expect_balanced_right = [](AttentionSpec spec, int page_size, DecodeRun problem) {
    spec.kv_lens = true;
    expect_right({.attention = in_pages(spec, page_size), .balances = true}, std::move(problem));
  };
  // Fewer splits than whole ones would need, more than there are keys for, and one beside the sequences.
  for (const int splits : {5, 11, 40})
    for (const int page_size : {0, 16})
      expect_balanced_right(
          grouped(64, 4, 2), page_size,
          {.batch = 4, .kv_len = 900, .splits = splits, .kv_lens = {900, 0, 1, 257}});
  AttentionSpec spec = grouped(64, 4, 1);
  spec.q_lens = true;
  spec.mask = causal();
  spec.sink = Sink("0.5 * h - q_idx");
  spec.score = Score("score - 0.01 * h * (kv_len - kv_idx) + 0.1 * b");
  expect_balanced_right(
      spec, 0,
      {.batch = 3,
       .q_len = 3,
       .kv_len = 700,
       .splits = 9,
       .q_lens = {3, 0, 1},
       .kv_lens = {130, 700, 0},
       .visible = is_causal,
       .score =
           [](const Site& s) { return s.score - 0.01 * s.h * (s.kv_len - s.kv_idx) + 0.1 * s.b; },
       .sink = [](const Site& s) { return 0.5 * s.h - s.q_idx; }});
  // The keys of a window alone are shared out.
  spec = grouped(64, 2, 1);
  spec.mask = sliding_window(299, 0);
  for (const int page_size : {0, 16})
    expect_balanced_right(spec, page_size,
                          {.batch = 2,
                           .kv_len = 1000,
                           .splits = 7,
                           .kv_lens = {1000, 45},
                           .visible = sees_window(300)});
}

// More sequences than a tile has.
TEST(AttentionDecode, SplitsAreBalancedOverManySequences) {
  AttentionSpec spec = grouped(32, 1, 1);
  spec.kv_lens = true;
  DecodeRun problem{.batch = 150, .kv_len = 600, .splits = 190};
  for (int b = 0; b < problem.batch; ++b) problem.kv_lens.push_back(b % 50 == 7 ? 600 : b % 9);
  expect_right({.attention = spec, .balances = true}, problem);
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
            "decoding with layout thd and combines_tiles = false\n"
            "  why: a block for each row does not know whether a sequence has it\n"
            "  try: combines_tiles = true, or balances = true");
  EXPECT_EQ(refusal({floats}),
            "decoding with dtype f32\n"
            "  why: its products take bf16 and f16 operands\n"
            "  try: dtype bf16 or f16, or attention_forward");
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

const Target& hopper() { return find_target("sm_90a"); }
constexpr int h200 = 132;  // multiprocessors

/// Splits of packed rows that are copied to shared memory.
std::int64_t splits(const DecodeProblem& problem, int page_size = 0) {
  return decode_splits(problem, split_costs(in_pages(grouped(128, 32, 8), page_size), {})).splits;
}

TEST(DecodeSplits, FillTheMultiprocessorsOnce) {
  // Eight heads of keys: 16 blocks each, which is one a multiprocessor.
  EXPECT_EQ(splits({.batch = 1, .heads = 8, .keys = 32768, .multiprocessors = h200}), 16);
  EXPECT_EQ(splits({.batch = 1, .heads = 8, .keys = 4096, .multiprocessors = h200}), 16);
  // No split without keys.
  EXPECT_EQ(splits({.batch = 1, .heads = 8, .keys = 300, .multiprocessors = h200}), 3);
  EXPECT_EQ(splits({.batch = 1, .heads = 8, .keys = 0, .multiprocessors = h200}), 1);
  // Enough blocks without splits.
  EXPECT_EQ(splits({.batch = 64, .heads = 8, .keys = 8192, .multiprocessors = h200}), 1);
  // By the coefficients of an H200, keys take less time in two blocks on each multiprocessor than in one alone.
  EXPECT_EQ(splits({.batch = 16, .heads = 8, .keys = 4096, .multiprocessors = h200}), 2);
  // Two blocks a multiprocessor where they look up pages, unless both would have next to nothing.
  EXPECT_EQ(splits({.batch = 1, .heads = 8, .keys = 32768, .multiprocessors = h200}, 16), 33);
  EXPECT_EQ(splits({.batch = 1, .heads = 8, .keys = 4096, .multiprocessors = h200}, 16), 16);
  // Blocks that fill little more than half: more splits, of which the last wave loses less.
  EXPECT_GT(splits({.batch = 9, .heads = 8, .keys = 8192, .multiprocessors = h200}), 1);
}

/// The text of a number evaluates to what the function says.
TEST(DecodeSplits, AreTheSameAsAnExpression) {
  AttentionSpec window = grouped(64, 32, 8);
  window.mask = sliding_window(999, 0);
  AttentionSpec packed = grouped(64, 32, 8);
  packed.layout = TensorLayout::thd;
  AttentionSpec packed_window = packed;
  packed_window.mask = window.mask;
  const DecodeSpec specs[] = {
      {grouped(64, 32, 8)},
      {in_pages(grouped(64, 32, 8), 16)},
      {grouped(64, 32, 8), DecodeRows::of_head},
      {grouped(128, 32, 8), DecodeRows::packed_in_registers, true},
      {window, DecodeRows::of_head},
      {packed, DecodeRows::packed, true},
      {packed_window, DecodeRows::packed, true},
      {in_pages(packed, 16), DecodeRows::packed, true},
  };
  for (const DecodeSpec& spec : specs)
    for (const int tile : {16, 64, 128})
      for (const int batch : {1, 2, 9, 17, 64, 200})
        for (const int rows : {1, 3, 16, 300})
          for (const int keys : {0, 16, 4096, 32768, 131072}) {
            const std::string text = decode_splits_text(spec, tile);
            const int all = spec.packs_heads() ? rows * 4 : rows;
            const DecodeProblem problem{.batch = batch,
                                        .heads = spec.packs_heads() ? 8 : 32,
                                        .row_tiles = (all + tile - 1) / tile,
                                        .keys = KeyRange(spec.attention).count(rows, keys),
                                        .multiprocessors = h200};
            EXPECT_EQ(number_of(text, {{"B", batch},
                                       {"Sq", rows},
                                       {"Sk", keys},
                                       {"Tq", rows * batch},
                                       {"Tk", keys * batch},
                                       {"max_pages", keys / 16},
                                       {"multiprocessors", h200}}),
                      decode_splits(problem, split_costs(spec.attention,
                                                         {spec.rows, tile, spec.combines_tiles}))
                          .splits)
                << text;
          }
}

TEST(KeyRange, HasTheKeysThatSomeRowSees) {
  const auto count = [](const Mask& mask, int q_len, int kv_len) {
    AttentionSpec spec = grouped(64, 4, 1);
    spec.mask = mask;
    return KeyRange(spec).count(q_len, kv_len);
  };
  EXPECT_EQ(count(full(), 5, 100), 100);
  EXPECT_EQ(count(causal(), 5, 100), 100);
  EXPECT_EQ(count(causal(), 100, 5), 5);
  // The last row sees ten keys, and each before it one more.
  EXPECT_EQ(count(sliding_window(9, 0), 1, 100), 10);
  EXPECT_EQ(count(sliding_window(9, 0), 5, 100), 14);
  EXPECT_EQ(count(sliding_window(9, 0), 5, 7), 7);
  EXPECT_EQ(count(Mask("kv_idx < 30"), 5, 100), 30);
  EXPECT_EQ(count(Mask("kv_idx < 30 & kv_idx >= q_idx + 40"), 5, 100), 0);
  // Other conditions may hide keys anywhere.
  EXPECT_EQ(count(Mask("kv_idx < 30 | kv_idx > 90"), 5, 100), 100);
}

TEST(KeyRange, HasTheKeysThatATypicalRowSees) {
  const auto typical = [](const Mask& mask, int q_len, int kv_len) {
    AttentionSpec spec = grouped(64, 4, 1);
    spec.mask = mask;
    return KeyRange(spec).typical_count(q_len, kv_len);
  };
  EXPECT_EQ(typical(full(), 5, 100), 100);
  EXPECT_EQ(typical(causal(), 1, 100), 100);
  EXPECT_EQ(typical(causal(), 5, 100), 98);
  EXPECT_EQ(typical(causal(), 101, 101), 51);
  EXPECT_EQ(typical(causal(), 101, 50), 0);
  EXPECT_EQ(typical(sliding_window(9, 0), 15, 15), 8);
  EXPECT_EQ(typical(sliding_window(9, 0), 101, 101), 10);
}

TEST(DecodeSplits, OfWhichRowsSeeNothingCostNothing) {
  // One head of many rows: of the blocks of a causal mask nearly half see no key.
  const SplitCosts costs = split_costs(grouped(128, 1, 1), {DecodeRows::of_head, 128});
  const auto best = [&](const Mask& mask) {
    AttentionSpec spec = grouped(128, 1, 1);
    spec.mask = mask;
    const DecodeBlocks blocks{DecodeRows::of_head, 128};
    return decode_splits(decode_problem(spec, blocks, {1, 1, 11520, 11520}, KeyRange(spec), h200),
                         costs);
  };
  const auto all = best(full()), half = best(causal());
  EXPECT_LT(half.cost, 0.75 * static_cast<double>(all.cost));
  EXPECT_EQ(half.splits, all.splits);
}

bool pays(std::int64_t batch, int heads, int kv_heads, std::int64_t q_len, std::int64_t kv_len,
          const Target& target = hopper(), const Mask& mask = causal()) {
  AttentionSpec spec = grouped(128, heads, kv_heads);
  spec.mask = mask;
  const DecodeChooser chooser(spec, target);
  return chooser.choose({batch, heads, q_len, kv_len}, h200).has_value();
}

TEST(SplittingPays, WhereItWasMeasuredFaster) {
  // Few heads of one sequence leave most multiprocessors without keys.
  EXPECT_TRUE(pays(1, 32, 8, 1, 512));
  EXPECT_TRUE(pays(1, 32, 8, 1, 32768));
  // Heads of a group share what they read.
  EXPECT_TRUE(pays(64, 32, 8, 1, 8192));
  EXPECT_TRUE(pays(53, 32, 2, 3, 15165));
  EXPECT_TRUE(pays(8, 2, 1, 21, 26463));
  // Blocks for every head fill the GPU anyway, and wgmma multiplies more rows in the same time.
  EXPECT_FALSE(pays(8, 32, 32, 64, 2048));
  EXPECT_FALSE(pays(16, 32, 32, 16, 1024));
  EXPECT_FALSE(pays(4, 32, 32, 64, 4096));
  // Chunks that fill few multiprocessors, and one that fills nearly all.
  EXPECT_TRUE(pays(1, 8, 1, 512, 65536));
  EXPECT_TRUE(pays(1, 32, 8, 256, 32768));
  EXPECT_TRUE(pays(1, 32, 8, 17, 32768));
  EXPECT_FALSE(pays(1, 32, 8, 512, 65536));
  EXPECT_FALSE(pays(1, 32, 8, 4096, 4096));
  // Keys that one block reads as fast; a window leaves a row no more.
  EXPECT_FALSE(pays(1, 32, 8, 1, 511));
  EXPECT_FALSE(pays(1, 32, 8, 1, 32768, hopper(), sliding_window(399, 0)));
  // Without wgmma, more rows than a tile has.
  EXPECT_FALSE(pays(1, 32, 8, 17, 32768, find_target("sm_80")));
  // One split of the rows of a head, however it comes out.
  const DecodeChooser chooser({.head_dim = 256, .heads = 16, .kv_heads = 1}, hopper());
  EXPECT_FALSE(chooser.choose({24, 16, 5, 35262}, h200).has_value());
}

TEST(DecodeChooser, TakesTilesThatTheRowsFill) {
  const auto blocks = [](int heads, int kv_heads, int q_len) {
    const DecodeChooser chooser(grouped(128, heads, kv_heads), hopper());
    return chooser.fastest({1, heads, q_len, 32768}, h200).blocks;
  };
  using Rows = DecodeRows;
  EXPECT_EQ(blocks(32, 8, 1), (DecodeBlocks{Rows::packed, 16, false}));
  EXPECT_EQ(blocks(32, 8, 16), (DecodeBlocks{Rows::packed, 64, false}));
  EXPECT_EQ(blocks(32, 8, 32), (DecodeBlocks{Rows::packed_in_registers, 128, false}));
  EXPECT_EQ(blocks(32, 8, 64), (DecodeBlocks{Rows::packed_in_registers, 128, false}));
  EXPECT_EQ(blocks(32, 8, 128), (DecodeBlocks{Rows::of_head, 128, true}));
  EXPECT_EQ(blocks(32, 8, 192), (DecodeBlocks{Rows::packed_in_registers, 128, false}));
  EXPECT_EQ(blocks(32, 8, 256), (DecodeBlocks{Rows::of_head, 128, true}));
  EXPECT_EQ(blocks(8, 1, 128), (DecodeBlocks{Rows::of_head, 128, false}));
  EXPECT_EQ(blocks(32, 32, 32), (DecodeBlocks{Rows::packed, 32, false}));
  EXPECT_EQ(blocks(32, 32, 64), (DecodeBlocks{Rows::of_head, 64, false}));
}

TEST(DecodeChooser, ListsWhatCallsCanHave) {
  for (const int group : {1, 3, 4, 8}) {
    const DecodeChooser chooser(grouped(128, 8 * group, 8), hopper());
    const std::vector<DecodeBlocks> listed = chooser.reachable({1, 50}, {1, 3000});
    for (int q_len = 1; q_len <= 3000; ++q_len)
      for (const int batch : {1, 50})
        EXPECT_NE(std::find(listed.begin(), listed.end(),
                            chooser.fastest({batch, 8 * group, q_len, 4096}, h200).blocks),
                  listed.end())
            << group << " " << q_len;
  }
}

}  // namespace
}  // namespace flashcore
