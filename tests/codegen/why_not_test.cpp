// Every reason at once, word by word, and that what is offered does work.
#include "codegen/why_not.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "codegen/generate.h"
#include "dsl/error.h"
#include "templates/attention.h"

namespace flashcore {
namespace {

using Reasons = std::vector<std::string>;

AttentionSpec head_dim(int dim) {
  AttentionSpec spec;
  spec.head_dim = dim;
  return spec;
}

Schedule tiles(std::map<std::string, int> sizes) {
  Schedule schedule;
  schedule.tiles = std::move(sizes);
  return schedule;
}

Reasons reasons(int dim, const Schedule& schedule, const char* target) {
  Reasons all = why_not(attention_forward(head_dim(dim)), schedule, find_target(target));
  for (std::string& reason : all) {
    const std::size_t at = reason.find("\n  at:  ");
    if (at != std::string::npos) reason.erase(at, reason.find('\n', at + 1) - at);
  }
  return all;
}

TEST(WhyNot, IsEmptyForWhatRuns) {
  for (const Target& target : all_targets())
    for (const int dim : {8, 64, 128, 256}) {
      AttentionSpec spec = head_dim(dim);
      if (!target.bf16) spec.dtype = DType::f16;
      EXPECT_EQ(why_not(attention_forward(spec), attention_schedule(spec, target), target),
                Reasons{})
          << dim << " on " << target.name;
    }
}

// As a build does, which takes the first that fits and throws what was wrong with the very first.
TEST(WhyNot, OfSchedulesTriedInTurn) {
  const Schedule fits = tiles({{"rows", 64}, {"cols", 64}}),
                 large = tiles({{"rows", 128}, {"cols", 512}}),
                 larger = tiles({{"rows", 128}, {"cols", 1024}});
  const Program program = attention_forward(head_dim(128));
  const Target& target = find_target("sm_80");
  EXPECT_EQ(why_not(program, std::vector{large, fits}, target), Reasons{});
  EXPECT_EQ(why_not(program, std::vector{large, larger}, target), why_not(program, large, target));
  EXPECT_NE(why_not(program, std::vector{large, larger}, target), Reasons{});
}

// What a schedule for newer targets lacks on sm_75, and what the spec lacks.
TEST(WhyNot, EveryReasonOnTheOldestTarget) {
  EXPECT_EQ(
      reasons(64, tiles({{"rows", 64}, {"cols", 64}}), "sm_75"),
      (Reasons{"instruction mma_m16n8k16 on sm_75\n"
               "  why: the target does not have it\n"
               "  try: instruction = wmma with softmax = shared, or a target from sm_80 up",
               "copy cp_async on sm_75\n"
               "  why: the target does not have it\n"
               "  try: copy = vector, or a target from sm_80 up",
               "bf16 on sm_75\n"
               "  why: its tensor cores take f16 only, and it has no conversion from f32 to bf16\n"
               "  try: f16, or a target from sm_80 up"}));
}

TEST(WhyNot, IndependentReasonsComeTogether) {
  Schedule schedule = tiles({{"rows", 72}, {"keys", 64}});
  schedule.warps_m = 64;
  schedule.stages = 9;
  schedule.blocks_per_processor = 0;
  EXPECT_EQ(reasons(64, schedule, "sm_89"),
            (Reasons{"0 blocks of 128 threads a multiprocessor\n"
                     "  why: sm_89 holds 1536 threads\n"
                     "  try: blocks_per_processor = 12",
                     "a tile size for \"keys\"\n"
                     "  why: program attention_forward has no tiled axis of that name\n"
                     "  try: its tiled axes are rows, cols",
                     "tile of 72 along rows\n"
                     "  why: tensor cores and swizzled shared memory work in steps of 16\n"
                     "  try: a multiple of 16 up to 1024",
                     "64 x 1 warps\n"
                     "  why: that is 2048 threads; a block of sm_89 has 32 to 1024\n"
                     "  try: warps_m = 4 and warps_n = 1 fit everywhere",
                     "9 stages\n"
                     "  why: a pipeline has 1 to 8 tiles in flight or in use\n"
                     "  try: 2 or 3",
                     "no tile size for axis cols\n"
                     "  why: program attention_forward cuts it into tiles\n"
                     "  try: schedule.tiles[\"cols\"] = 64"}));
}

TEST(WhyNot, TileMultiplesAndSharedMemoryTogether) {
  Schedule schedule = tiles({{"rows", 80}, {"cols", 128}});
  schedule.stages = 3;
  EXPECT_EQ(
      reasons(128, schedule, "sm_89"),
      (Reasons{"a tile of 80 along rows\n"
               "  why: the rows or columns of a warp in a product are a multiple of 16, so with "
               "warps_m = 4 "
               "the tile must be a multiple of 64\n"
               "  try: a tile of 128, or fewer warps",
               "attention_forward needs 229376 bytes of shared memory a block (taking a tile of "
               "128 along rows)\n"
               "  why: sm_89 allows 101376\n"
               "  try: stages = 1, or a tile of 32 along cols"}));
}

TEST(WhyNot, SeesPastAnInstructionThatTheTargetLacks) {
  Target old = find_target("sm_89");
  old.name = "sm_70";
  old.async_copy = old.mma_m16n8k16 = false;
  const Schedule schedule = tiles({{"rows", 128}, {"cols", 128}});
  EXPECT_EQ(why_not(attention_forward(head_dim(128)), schedule, old),
            (Reasons{"instruction mma_m16n8k16 on sm_70\n"
                     "  why: the target does not have it\n"
                     "  try: instruction = wmma with softmax = shared, or a target from sm_80 up",
                     "copy cp_async on sm_70\n"
                     "  why: the target does not have it\n"
                     "  try: copy = vector, or a target from sm_80 up",
                     "attention_forward needs 163840 bytes of shared memory a block\n"
                     "  why: sm_70 allows 101376\n"
                     "  try: stages = 1, or a tile of 64 along cols"}));
}

TEST(WhyNot, RegistersThatALoopCannotDoWithout) {
  Schedule schedule = tiles({{"rows", 256}, {"cols", 16}});
  schedule.stages = 1;
  EXPECT_EQ(
      reasons(256, schedule, "sm_90"),
      (Reasons{"attention_forward needs more than 528 registers a thread\n"
               "  why: a loop carries so many, and 128 threads in 1 block(s) a multiprocessor of "
               "sm_90 have 255 each\n"
               "  try: smaller tiles, more warps for the same rows, or fewer "
               "blocks_per_processor"}));
  schedule.warps_m = 8;
  schedule.blocks_per_processor = 2;
  EXPECT_EQ(reasons(128, schedule, "sm_90").size(), 1u);
}

// Of warpgroups' registers most are the consumers'.
TEST(WhyNot, RegistersOfThoseThatCompute) {
  Schedule schedule = tiles({{"rows", 192}, {"cols", 32}});
  schedule.instruction = Instruction::wgmma;
  schedule.copy = CopyInstruction::tma;
  schedule.warps_m = 12;
  EXPECT_EQ(reasons(256, schedule, "sm_90a"), Reasons{});
  EXPECT_EQ(
      reasons(320, schedule, "sm_90a"),
      (Reasons{
          "attention_forward needs more than 164 registers a thread\n"
          "  why: a loop carries so many, and 384 computing threads in 1 block(s) a multiprocessor "
          "of "
          "sm_90a have 160 each\n"
          "  try: smaller tiles, more warps for the same rows, or fewer blocks_per_processor"}));
}

TEST(WhyNot, RowsOfWarpgroups) {
  Schedule schedule = tiles({{"rows", 192}, {"cols", 128}});
  schedule.instruction = Instruction::wgmma;
  schedule.copy = CopyInstruction::tma;
  schedule.warps_m = 8;
  schedule.stages = 4;
  EXPECT_EQ(
      reasons(128, schedule, "sm_90a"),
      (Reasons{
          "a tile of 192 along rows\n"
          "  why: each of the 2 warpgroups makes 64 rows of a product\n"
          "  try: warps_m = 12",
          "attention_forward needs 311440 bytes of shared memory a block (taking warps_m = 12)\n"
          "  why: sm_90a allows 232448\n"
          "  try: stages = 2, or a tile of 64 along cols"}));
}

TEST(WhyNot, EveryReasonAgainstWarpgroups) {
  Schedule schedule = tiles({{"rows", 128}, {"cols", 64}});
  schedule.instruction = Instruction::wgmma;
  schedule.copy = CopyInstruction::tma;
  schedule.warps_m = 8;
  EXPECT_EQ(reasons(64, schedule, "sm_90"),
            (Reasons{"instruction wgmma on sm_90\n"
                     "  why: the target does not have it\n"
                     "  try: instruction = mma_m16n8k16 with copy = cp_async, or target sm_90a",
                     "copy tma on sm_90\n"
                     "  why: the target does not have it\n"
                     "  try: copy = cp_async, or target sm_90a"}));
  schedule.copy = CopyInstruction::cp_async;
  schedule.softmax = Softmax::shared;
  schedule.warps_m = 6;
  schedule.reduction_chains = 3;
  schedule.outer_stages = 2;
  schedule.grid_order = GridOrder::grouped;
  EXPECT_EQ(
      reasons(64, schedule, "sm_90a"),
      (Reasons{"instruction wgmma without copy = tma\n"
               "  why: wgmma reads tiles from shared memory, where only the copy engine puts them\n"
               "  try: both or neither",
               "instruction wgmma with softmax = shared\n"
               "  why: its accumulators are in registers with a known layout\n"
               "  try: softmax = registers",
               "instruction wgmma with 6 x 1 warps\n"
               "  why: one to three warpgroups of four warps divide rows and columns among them\n"
               "  try: warps_m = 8 and warps_n = 1",
               "reduction_chains = 3\n"
               "  why: the fragments of a row are divided among 1, 2 or 4 chains\n"
               "  try: 1",
               "outer_stages = 2 without persistent = true\n"
               "  why: a tile loaded outside loops has one slot, or two in a block that computes "
               "several tiles\n"
               "  try: 1",
               "grid_order = grouped without persistent = true\n"
               "  why: the hardware orders blocks by their three grid axes only\n"
               "  try: tiles_first or tiles_last"}));
}

TEST(WhyNot, WhatItOffersWorks) {
  Schedule schedule = tiles({{"rows", 128}, {"cols", 64}});
  schedule.stages = 2;
  EXPECT_EQ(reasons(128, schedule, "sm_89"), Reasons{});
}

TEST(NearestSpec, HasNoContradictions) {
  AttentionSpec spec = head_dim(100);
  spec.head_dim_v = 600;
  spec.dtype = DType::f32;
  spec.heads = 6;
  spec.kv_heads = 4;
  spec.q_len = 0;
  spec.mask = Mask("kv_idx <=");
  spec.score = Score("score + slopes[h]");
  const AttentionSpec near = nearest_valid(spec);
  EXPECT_TRUE(check(near).empty());
  EXPECT_EQ(near.head_dim, 100);
  EXPECT_EQ(near.head_dim_v, 512);
  EXPECT_FALSE(near.q_len);
}

}  // namespace
}  // namespace flashcore
