// Tiles that end where the query rows end: the partial tile is the first of a head, which visits the
// fewest keys under a causal mask.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "codegen/generate.h"
#include "templates/attention.h"
#include "tests/templates/support/attention_run.h"

namespace flashcore {
namespace {

Schedule schedule_of(int warpgroups, int cols, bool persistent) {
  Schedule s;
  s.instruction = Instruction::wgmma;
  s.copy = CopyInstruction::tma;
  s.warps_m = 4 * warpgroups;
  s.tiles = {{"rows", 64 * warpgroups}, {"cols", cols}};
  s.last_tiles_first = s.end_aligned_tiles = true;
  s.persistent = persistent;
  return s;
}

void expect_right(const AttentionSpec& spec, const Schedule& schedule) {
  const KernelSource source = generate(attention_forward(spec), schedule, find_target("sm_90a"));
  for (const int rows : {1, 63, 64, 65, 191, 192, 193, 300})
    for (const int keys : {1, 80, rows}) {
      SCOPED_TRACE(fmt::format("{} rows, {} keys", rows, keys));
      KernelRun run =
          attention_run(spec, {.heads = 2, .kv_heads = 2, .q_len = rows, .kv_len = keys});
      const EmulationReport report = run.emulate(source);
      EXPECT_EQ(run.compare(), "");
      for (const OutputCoverage& output : report.outputs) {
        EXPECT_EQ(output.unwritten, 0) << output.name;
        EXPECT_EQ(output.rewritten, 0) << output.name;
      }
    }
}

TEST(EndAlignedTiles, ComputeEveryRowOnce) {
  Schedule schedule = schedule_of(3, 48, true);
  schedule.tile_scheduler = PersistentScheduler::dynamic;
  schedule.grid_order = GridOrder::grouped;
  schedule.peel_masks = schedule.lazy_scaling = true;
  schedule.staged_stores = false;
  expect_right({.head_dim = 32, .mask = causal(), .lse = true}, schedule);
}

/// No copy engine stores a box that begins in front of a tensor.
TEST(EndAlignedTiles, AreStoredByThreads) {
  expect_right({.head_dim = 64, .mask = causal(), .lse = true}, schedule_of(1, 32, false));
}

TEST(EndAlignedTiles, HaveRowsWithoutKeysInFront) {
  expect_right({.head_dim = 32, .mask = causal(Align::top_left), .lse = true},
               schedule_of(2, 64, true));
  expect_right({.head_dim = 32, .mask = sliding_window(40, 0), .lse = true},
               schedule_of(2, 32, true));
}

/// 4096 rows are 21 tiles of 192 and one of 64. Where the first one is partial, each of the others
/// ends 128 rows earlier.
TEST(EndAlignedTiles, VisitFewerKeysUnderACausalMask) {
  const MaskTraits mask(AttentionSpec{.head_dim = 128, .mask = causal()});
  const AttentionProblem problem{.batch = 1, .heads = 1, .q_len = 4096, .kv_len = 4096};
  EXPECT_EQ(mask.visible_keys(problem, {192}).most(), 4096);
  EXPECT_EQ(mask.visible_keys(problem, {192, true}).most(), 4096);
  EXPECT_EQ(mask.visible_keys(problem, {192}).least(), 192);
  EXPECT_EQ(mask.visible_keys(problem, {192, true}).least(), 64);
}

}  // namespace
}  // namespace flashcore
