// Attention whose output of a row is wider than the registers of a warp: on every target that has
// room for it, with everything that narrower heads take besides, and refused with numbers
// elsewhere.
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "codegen/generate.h"
#include "codegen/why_not.h"
#include "dsl/error.h"
#include "dsl/json.h"
#include "dsl/variants.h"
#include "templates/attention.h"
#include "tests/templates/support/attention_run.h"

namespace flashcore {
namespace {

void expect_right(const AttentionSpec& spec, const Schedule& schedule, const Target& target,
                  const std::vector<AttentionInputs>& launches) {
  SCOPED_TRACE(fmt::format("{} {} and {} on {} with {}", name_of(spec.dtype), spec.head_dim,
                           spec.value_dim(), target.name, to_json(schedule)));
  try {
    const KernelSource source = generate(attention_forward(spec), schedule, target);
    for (const AttentionInputs& in : launches) {
      KernelRun run = attention_run(spec, in);
      const EmulationReport report = run.emulate(source);
      EXPECT_EQ(run.compare(), "") << in.q_len << " queries and " << in.kv_len << " keys";
      for (const OutputCoverage& output : report.outputs) EXPECT_EQ(output.rewritten, 0);
      if (spec.head_dim % 64 == 0 && spec.value_dim() % 64 == 0) {
        EXPECT_EQ(report.banks.conflicts(), 0);
      }
    }
  } catch (const Error& error) {
    ADD_FAILURE() << error.what();
  }
}

using Dims = std::pair<int, int>;
class WideHeads : public testing::TestWithParam<Dims> {};

TEST_P(WideHeads, AreRightOnEveryTarget) {
  for (const char* name : {"sm_80", "sm_86", "sm_90", "sm_90a", "sm_120"}) {
    const Target& target = find_target(name);
    AttentionSpec spec{.head_dim = GetParam().first, .head_dim_v = GetParam().second};
    spec.mask = causal();
    spec.lse = true;
    expect_right(spec, attention_schedule(spec, target), target,
                 {{.q_len = 70, .kv_len = 90}, {.q_len = 33, .kv_len = 3}});
  }
}

// What is tried where the first one spills, or beside a mask that needs shared memory.
TEST_P(WideHeads, HaveOtherSchedulesBehindTheFirst) {
  for (const char* name : {"sm_80", "sm_86", "sm_90", "sm_90a"}) {
    const Target& target = find_target(name);
    const AttentionSpec spec{.head_dim = GetParam().first, .head_dim_v = GetParam().second};
    const std::vector<Schedule> schedules = attention_schedules(spec, target);
    EXPECT_GE(schedules.size(), GetParam().first > 512 ? 1U : 2U) << name;
    for (const Schedule& schedule : schedules)
      expect_right(spec, schedule, target, {{.q_len = 20, .kv_len = 50}});
  }
}

INSTANTIATE_TEST_SUITE_P(Dims, WideHeads,
                         testing::Values(Dims{264, 264}, Dims{320, 320}, Dims{512, 512},
                                         Dims{576, 512}, Dims{64, 512}, Dims{512, 24}),
                         [](const auto& dims) {
                           return fmt::format("{}_{}", dims.param.first, dims.param.second);
                         });

TEST(WideHeads, TakeWhatNarrowOnesTake) {
  std::vector<std::pair<AttentionSpec, AttentionInputs>> cases;
  const auto add = [&](AttentionSpec spec, const AttentionInputs& in) {
    for (const int head_dim : {320, 512}) {
      spec.head_dim = head_dim;
      cases.emplace_back(spec, in);
    }
  };
  add({.dtype = DType::f16, .mask = sliding_window(20, 0)}, {.q_len = 65, .kv_len = 100});
  add({.mask = prefix(30) | causal()}, {.q_len = 65, .kv_len = 100});
  add({.heads = 4, .kv_heads = 2, .score = softcap(20)},
      {.batch = 2, .heads = 4, .kv_heads = 2, .q_len = 10, .kv_len = 66});
  add({.mask = causal(), .layout = TensorLayout::thd, .lse = true},
      {.batch = 3, .heads = 1, .q_lens = {0, 65, 7}, .kv_lens = {5, 66, 130}, .beyond = 3});
  add({.layout = TensorLayout::bshd, .q_lens = true, .kv_lens = true},
      {.batch = 2, .q_len = 70, .kv_len = 70, .q_lens = {70, 3}, .kv_lens = {1, 65}});
  add({.large_scores = true}, {.q_len = 3, .kv_len = 0});
  // A tile of conditions has a byte each, and at head_dim 512 warpgroups divide its columns.
  add({.mask = Mask("visible[q_idx, kv_idx]", {{"visible", DType::i1, 2, true, true}})},
      {.q_len = 65, .kv_len = 100, .captured_lengths = {{"visible_n0", 65}, {"visible_n1", 100}}});
  add({.score = bias({"bias", DType::bf16, 2, /*unit_stride=*/true, /*aligned_rows=*/true})},
      {.q_len = 65, .kv_len = 100, .captured_lengths = {{"bias_n0", 65}, {"bias_n1", 100}}});
  for (const char* name : {"sm_90", "sm_90a"})
    for (const auto& [spec, in] : cases)
      expect_right(spec, attention_schedule(spec, find_target(name)), find_target(name), {in});
}

TEST(WideHeads, AreRefusedWithNumbersWhereTheyHaveNoRoom) {
  const Target& target = find_target("sm_75");
  const AttentionSpec spec{.head_dim = 512, .dtype = DType::f16};
  try {
    (void)generate(attention_forward(spec), attention_schedule(spec, target), target);
    ADD_FAILURE() << "nothing was refused";
  } catch (const ScheduleError& error) {
    EXPECT_EQ(error.complaint().why, "sm_75 allows 65536");
    EXPECT_FALSE(error.complaint().fix.empty());
  }
}

// Warpgroups too.
TEST(ProductSplit, OfColumnsIsRightForTwoAndThreeWarpgroups) {
  const Target& target = find_target("sm_90a");
  for (const int groups : {2, 3})
    for (const int cols : {16 * groups, 64 * groups})
      for (const bool persistent : {false, true})
        for (const bool peels : {false, true}) {
          Schedule schedule;
          schedule.tiles = {{"rows", 64}, {"cols", cols}};
          schedule.instruction = Instruction::wgmma;
          schedule.copy = CopyInstruction::tma;
          schedule.warps_m = 4;
          schedule.warps_n = groups;
          schedule.product_split = ProductSplit::columns;
          schedule.stages = 1;
          schedule.persistent = persistent;
          schedule.staged_stores = schedule.peel_masks = peels;
          expect_right({.head_dim = 128, .mask = causal(), .lse = true}, schedule, target,
                       {{.q_len = 70, .kv_len = 90}, {.heads = 3, .q_len = 1, .kv_len = 200}});
        }
}

// While the engine still stores a tile's output, the block computes the weights of the next tile.
TEST(ProductSplit, OfColumnsIsRightForBlocksOfSeveralTiles) {
  AttentionSpec spec;
  spec.head_dim = 64;
  Schedule schedule;
  schedule.tiles = {{"rows", 64}, {"cols", 128}};
  schedule.warps_n = 2;
  schedule.product_split = ProductSplit::columns;
  schedule.instruction = Instruction::wgmma;
  schedule.copy = CopyInstruction::tma;
  schedule.stages = 1;
  schedule.overlap_products = false;
  for (const bool persistent : {true, false}) {
    schedule.persistent = persistent;
    schedule.positions_per_block = persistent ? 1 : 2;
    KernelRun run = attention_run(spec, {.heads = 4, .q_len = 200, .kv_len = 150});
    (void)run.emulate(generate(attention_forward(spec), schedule, find_target("sm_90a")));
    EXPECT_EQ(run.compare(), "");
  }
}

// The warps along the columns divide key columns of the scores and columns of the output.
TEST(ProductSplit, OfColumnsIsRightForEveryNumberOfWarps) {
  const Target& target = find_target("sm_80");
  for (const auto& [warps_m, warps_n] :
       {Dims{1, 2}, Dims{2, 2}, Dims{1, 4}, Dims{2, 4}, Dims{1, 3}})
    for (const bool keep : {false, true})
      for (const int stages : {1, 2}) {
        Schedule schedule;
        schedule.tiles = {{"rows", 16 * warps_m}, {"cols", 16 * warps_n}};
        schedule.warps_m = warps_m;
        schedule.warps_n = warps_n;
        schedule.product_split = ProductSplit::columns;
        schedule.keep_operands = keep;
        schedule.stages = stages;
        expect_right({.head_dim = 64, .mask = causal(), .lse = true}, schedule, target,
                     {{.q_len = 70, .kv_len = 90}, {.q_len = 1, .kv_len = 129}});
      }
}

}  // namespace
}  // namespace flashcore
