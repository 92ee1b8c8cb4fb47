// Programs and schedules whose tiles cannot end where their axis ends, word by word.
#include <gtest/gtest.h>

#include "tests/codegen/support/programs.h"
#include "tests/codegen/support/refusals.h"

namespace flashcore {
namespace {

TEST(EndAlignedRefusals, SayWhatTheTilesWouldReach) {
  AttentionSpec spec = head_dim(64);
  spec.mask = causal();
  Schedule schedule = tiles({{"rows", 128}, {"cols", 64}});
  schedule.instruction = Instruction::wgmma;
  schedule.copy = CopyInstruction::tma;
  schedule.warps_m = 8;
  schedule.end_aligned_tiles = true;
  EXPECT_EQ(refused(attention_forward(spec), schedule, "sm_90a").words, "nothing was refused");
  Schedule shared = schedule;
  shared.persistent = true;
  shared.multicast_blocks = 2;
  EXPECT_EQ(refused(attention_forward(spec), shared, "sm_90a").words,
            "end_aligned_tiles = true with multicast_blocks = 2\n"
            "  why: the last block of a cluster may have a tile behind all others\n"
            "  try: end_aligned_tiles = false");
  Schedule small = tiles({{"rows", 64}, {"cols", 64}});
  small.end_aligned_tiles = true;
  EXPECT_EQ(refused(attention_forward(spec), small).words,
            "end_aligned_tiles = true without copy = tma\n"
            "  why: the copy engine alone loads zeros in front of a tensor\n"
            "  try: end_aligned_tiles = false");
  AttentionSpec packed = spec;
  packed.layout = TensorLayout::thd;
  EXPECT_EQ(refused(attention_forward(packed), schedule, "sm_90a").words,
            "end_aligned_tiles = true with a ragged axis\n"
            "  why: the tiles of a segment are counted from its beginning\n"
            "  try: end_aligned_tiles = false");
  AttentionSpec looked_up = spec;
  looked_up.score = Score("score + bias[q_idx]", {{"bias", DType::f32, 1}});
  EXPECT_EQ(refused(attention_forward(looked_up), schedule, "sm_90a").words,
            "end_aligned_tiles = true where bias is read by rows\n"
            "  why: an index of a row in front of the axis is negative\n"
            "  try: end_aligned_tiles = false");
}

}  // namespace
}  // namespace flashcore
