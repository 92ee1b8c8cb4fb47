// The gradients of attention on the emulator: every program against the reference, and all of them
// together against the formulas written out in double precision. No gradient may be off by more
// than three times what a plain evaluation in 16 bits is off by, which rounds every tensor that it
// makes.
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "codegen/generate.h"
#include "dsl/json.h"
#include "runtime/reference/formats.h"
#include "templates/attention_backward.h"
#include "tests/templates/support/backward_run.h"

namespace flashcore {
namespace {

using Visible = std::function<bool(const Site&)>;

int diagonal(const Site& s) { return s.q_idx + s.kv_len - s.q_len; }
bool everything(const Site&) { return true; }
bool is_causal(const Site& s) { return s.kv_idx <= diagonal(s); }

BackwardProblem sized(int q_len, int kv_len, int batch = 1, int heads = 1) {
  return {.batch = batch, .heads = heads, .kv_heads = heads, .q_len = q_len, .kv_len = kv_len};
}

BackwardProblem of_sequences(std::vector<int> q, std::vector<int> kv) {
  BackwardProblem problem{.batch = static_cast<int>(q.size())};
  problem.q_lens = std::move(q);
  problem.kv_lens = std::move(kv);
  return problem;
}

const std::vector<BackwardProblem> lengths = {sized(70, 130, 2, 2), sized(1, 77), sized(77, 1),
                                              sized(1, 1), sized(130, 31)};

/// Under the first schedule of every target, or under all of them.
void expect_right(AttentionSpec spec, const Visible& visible,
                  const std::vector<BackwardProblem>& problems,
                  const std::vector<CapturedValues>& captured = {}, bool all_schedules = false) {
  std::set<std::string> have_run;
  for (const Target& target : all_targets()) {
    SCOPED_TRACE(target.name);
    spec.dtype = target.bf16 ? DType::bf16 : DType::f16;
    const auto kernels = backward_kernels(spec, target, false, all_schedules);
    if (!have_run.insert(text_of(kernels)).second) continue;
    for (BackwardProblem problem : problems) {
      SCOPED_TRACE(fmt::format("{} queries and {} keys", problem.q_len, problem.kv_len));
      problem.captured = captured;
      EXPECT_EQ(compare_backward(kernels, spec, visible, problem), "");
    }
  }
}

TEST(AttentionBackward, IsRightForEveryLength) {
  expect_right({.head_dim = 64}, everything, lengths);
}

TEST(AttentionBackward, IsRightUnderACausalMask) {
  expect_right({.head_dim = 64, .mask = causal()}, is_causal, lengths);
}

TEST(AttentionBackward, IsRightForEveryHeadDim) {
  for (const int head_dim : {32, 40, 96, 128, 256})
    expect_right({.head_dim = head_dim, .mask = causal()}, is_causal, {sized(70, 100)});
}

TEST(AttentionBackward, IsRightUnderEverySchedule) {
  for (const auto& [head_dim, mask] :
       {std::pair{64, full()}, {64, causal()}, {128, causal()}, {192, full()}})
    expect_right({.head_dim = head_dim, .mask = mask}, mask.is_full() ? everything : is_causal,
                 {sized(150, 140)}, {}, true);
}

// Of shared memory read by threads and the tensor core in turn, slot after slot and tile after tile.
TEST(AttentionBackward, IsRightWithVectorsBesideTilesAndKeptOperands) {
  const Target& target = find_target("sm_90a");
  for (const Mask& mask : {full(), causal()}) {
    const AttentionSpec spec{.head_dim = 64, .mask = mask};
    std::vector<ProgramKernels> kernels = backward_kernels(spec, target, false, false);
    for (ProgramKernels& own : kernels) {
      const bool by_keys = own.program.name() == "attention_backward_keys";
      if (!by_keys && own.program.name() != "attention_backward_queries") continue;
      Schedule schedule = attention_backward_schedules(own.program.name(), spec, target).front();
      schedule.keep_operands = true;
      schedule.load_vectors = by_keys;
      std::vector<Schedule> schedules;
      for (const int tile : {32, 64})
        for (const int stages : {1, 3})
          for (const bool persistent : {false, true}) {
            schedule.tiles[by_keys ? "rows" : "cols"] = tile;
            schedule.stages = stages;
            schedule.persistent = persistent;
            schedule.ping_pong = tile == 64;
            if (!persistent) schedule.tile_scheduler = PersistentScheduler::serpentine;
            if (!persistent) schedule.grid_order = GridOrder::tiles_first;
            schedules.push_back(schedule);
          }
      own = generate_for(own.program, schedules, target, true);
      EXPECT_EQ(own.kernels.size(), schedules.size());
    }
    EXPECT_EQ(compare_backward(kernels, spec, mask.is_full() ? everything : is_causal,
                               {sized(150, 140, 2, 3)}),
              "");
  }
}

// Behind a sequence lie the log-sum-exps of the next one, some of them so small that weights made of them
// would be infinite, which zeros of dO do not make right.
TEST(AttentionBackward, IsRightWithVectorsOfPackedSequencesBesideTiles) {
  const Target& target = find_target("sm_90a");
  BackwardProblem problem = of_sequences({5, 0, 130, 1, 70}, {5, 3, 130, 0, 70});
  problem.spread = 200;
  for (const Mask& mask : {full(), causal()}) {
    const AttentionSpec spec{.head_dim = 64, .mask = mask, .layout = TensorLayout::thd};
    std::vector<ProgramKernels> kernels = backward_kernels(spec, target, false, false);
    for (ProgramKernels& own : kernels) {
      if (own.program.name() != "attention_backward_keys") continue;
      Schedule schedule = attention_backward_schedules(own.program.name(), spec, target).front();
      schedule.load_vectors = true;
      std::vector<Schedule> schedules;
      for (const int rows : {32, 48, 64})
        for (const int stages : {1, 2, 3}) {
          schedule.tiles["rows"] = rows;
          schedule.stages = stages;
          schedule.ping_pong = rows == 64;
          schedules.push_back(schedule);
        }
      own = generate_for(own.program, schedules, target, true);
      EXPECT_EQ(own.kernels.size(), schedules.size());
    }
    EXPECT_EQ(compare_backward(kernels, spec, mask.is_full() ? everything : is_causal, problem),
              "");
  }
}

TEST(AttentionBackward, IsRightForValuesOfAnotherWidth) {
  expect_right({.head_dim = 96, .head_dim_v = 64}, everything, {sized(70, 100)});
  expect_right({.head_dim = 40, .head_dim_v = 120, .mask = causal()}, is_causal, {sized(70, 100)});
}

TEST(AttentionBackward, SumsOverTheHeadsOfAGroup) {
  for (const TensorLayout layout : {TensorLayout::bhsd, TensorLayout::bshd})
    expect_right(
        {.head_dim = 64, .heads = 6, .kv_heads = 2, .mask = causal(), .layout = layout}, is_causal,
        {{.batch = 2, .heads = 6, .kv_heads = 2, .q_len = 40, .kv_len = 70, .row_gap = 8}});
}

TEST(AttentionBackward, IsRightInAWindow) {
  const auto window = [](const Site& s) {
    return s.kv_idx >= diagonal(s) - 20 && s.kv_idx <= diagonal(s) + 5;
  };
  expect_right({.head_dim = 64, .mask = sliding_window(20, 5)}, window, lengths);
}

TEST(AttentionBackward, IsRightUnderMasksThatAreScanned) {
  CapturedValues ids{{"ids", DType::i32, 1}, {150}, {}};
  for (int i = 0; i < 150; ++i) ids.values.push_back(i / 40);
  const auto same = [=](const Site& s) {
    return s.q_idx / 40 == s.kv_idx / 40 && s.kv_idx <= s.q_idx;
  };
  expect_right({.head_dim = 64, .mask = documents(ids.tensor) & causal(Align::top_left)}, same,
               {sized(150, 150), sized(90, 40)}, {ids});
  expect_right(
      {.head_dim = 64, .mask = prefix(25) | causal()},
      [](const Site& s) { return s.kv_idx < 25 || is_causal(s); }, lengths);
}

TEST(AttentionBackward, OfRowsWithoutAKeyIsZero) {
  expect_right({.head_dim = 64, .mask = Mask("kv_idx < 0")}, [](const Site&) { return false; },
               {sized(70, 100)});
  expect_right({.head_dim = 64}, everything, {sized(70, 0), sized(0, 70)});
}

TEST(AttentionBackward, IsRightForLargeScores) {
  BackwardProblem large = sized(70, 100);
  large.spread = 30;
  expect_right({.head_dim = 64, .mask = causal()}, is_causal, {large});
}

// Weights beyond a sequence, made of the next one's log-sum-exps, would be infinite where scores are large.
TEST(AttentionBackward, IsRightForPackedSequences) {
  BackwardProblem large = of_sequences({5, 0, 130, 1, 70}, {5, 3, 130, 0, 70});
  large.spread = 200;
  for (const Mask& mask : {full(), causal()})
    expect_right(
        {.head_dim = 64, .mask = mask, .layout = TensorLayout::thd},
        mask.is_full() ? everything : is_causal,
        {of_sequences({5, 0, 130, 1}, {5, 3, 130, 0}), of_sequences({64, 3}, {1, 200}), large});
}

TEST(AttentionBackward, IsRightForPackedSequencesWithGroups) {
  BackwardProblem problem = of_sequences({30, 70}, {80, 70});
  problem.heads = 4;
  problem.kv_heads = 2;
  expect_right(
      {.head_dim = 64, .heads = 4, .kv_heads = 2, .mask = causal(), .layout = TensorLayout::thd},
      is_causal, {problem});
}

TEST(AttentionBackward, IsRightForPaddedSequences) {
  BackwardProblem problem = of_sequences({140, 0, 1, 77}, {150, 33, 0, 100});
  problem.q_len = 140;
  problem.kv_len = 150;
  BackwardProblem large = problem;
  large.spread = 200;
  for (const Mask& mask : {full(), causal()})
    expect_right({.head_dim = 64, .mask = mask, .q_lens = true, .kv_lens = true},
                 mask.is_full() ? everything : is_causal, {problem, large});
}

TEST(AttentionBackward, IsRightForWideHeadsOfGroupsAndSequences) {
  BackwardProblem packed = of_sequences({30, 70}, {80, 70}),
                  padded = of_sequences({40, 7}, {9, 70});
  padded.q_len = 40;
  padded.kv_len = 70;
  for (BackwardProblem* problem : {&packed, &padded}) {
    problem->heads = 4;
    problem->kv_heads = 2;
  }
  const AttentionSpec wide{.head_dim = 144, .heads = 4, .kv_heads = 2, .mask = causal()};
  AttentionSpec thd = wide, lengths_given = wide;
  thd.layout = TensorLayout::thd;
  lengths_given.layout = TensorLayout::bshd;
  lengths_given.q_lens = lengths_given.kv_lens = true;
  expect_right(thd, is_causal, {packed});
  expect_right(lengths_given, is_causal, {padded});
}

/// A sink takes weight from every key; its share is in the log-sum-exps.
TEST(AttentionBackward, IsRightWithASink) {
  CapturedValues logits{{"logits", DType::f32, 1}, {2}, {1.5, -1}};
  BackwardProblem problem = sized(70, 100, 1, 2);
  problem.sink = [](const Site& s) { return s.h == 0 ? 1.5 : -1; };
  expect_right({.head_dim = 64, .mask = causal(), .sink = sinks(logits.tensor)}, is_causal,
               {problem});
}

std::string refusal(const std::function<void()>& build) {
  try {
    build();
  } catch (const SpecError& error) {
    const std::string words = error.what();
    const std::size_t at = words.find("\n  at:  ");
    return at == std::string::npos ? words
                                   : words.substr(0, at) + words.substr(words.find('\n', at + 1));
  }
  return "accepted";
}

TEST(AttentionBackward, RefusesWhatHasNoDerivativeYet) {
  EXPECT_EQ(refusal([] { attention_backward_rows({.head_dim = 64, .dtype = DType::f32}); }),
            "the backward of attention with dtype f32\n"
            "  why: its products take bf16 and f16 operands\n"
            "  try: dtype bf16 or f16");
  EXPECT_EQ(refusal([] { attention_backward_values({.head_dim = 128}); }),
            "a program of its own for the gradient of the values\n"
            "  why: attention_backward_keys computes it, up to a head_dim of 128\n"
            "  try: attention_backward_keys");
  EXPECT_EQ(refusal([] { attention_backward_groups({.head_dim = 64}); }),
            "sums over the query heads of a group\n"
            "  why: the spec has as many heads of keys as of queries\n"
            "  try: attention_backward_keys alone, which stores dk and dv");
}

}  // namespace
}  // namespace flashcore
