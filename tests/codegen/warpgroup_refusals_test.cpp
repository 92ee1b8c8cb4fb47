// What code generation refuses of Hopper's schedules and of programs under them, word by word.
#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "codegen/why_not.h"
#include "templates/attention_backward.h"
#include "tests/codegen/support/programs.h"
#include "tests/codegen/support/refusals.h"
#include "tests/codegen/support/schedules.h"

namespace flashcore {
namespace {

TEST(WarpgroupRefusals, WarpgroupsAndTheCopyEngineComeTogether) {
  const Program program = attention_forward(head_dim(64));
  Schedule schedule = warpgroups(128, 64);
  EXPECT_EQ(refused(program, schedule, "sm_90a").words, "nothing was refused");
  EXPECT_EQ(refused(program, schedule, "sm_90").words,
            "instruction wgmma on sm_90\n"
            "  why: the target does not have it\n"
            "  try: instruction = mma_m16n8k16 with copy = cp_async, or target sm_90a");
  schedule.instruction = Instruction::mma_m16n8k16;
  EXPECT_EQ(refused(program, schedule, "sm_90").words,
            "copy tma on sm_90\n"
            "  why: the target does not have it\n"
            "  try: copy = cp_async, or target sm_90a");
  EXPECT_EQ(refused(program, schedule, "sm_90a").words,
            "copy tma without instruction = wgmma\n"
            "  why: wgmma reads tiles from shared memory, where only the copy engine puts them\n"
            "  try: both or neither");
  schedule.instruction = Instruction::wgmma;
  schedule.copy = CopyInstruction::cp_async;
  EXPECT_EQ(refused(program, schedule, "sm_90a").words,
            "instruction wgmma without copy = tma\n"
            "  why: wgmma reads tiles from shared memory, where only the copy engine puts them\n"
            "  try: both or neither");
}

TEST(WarpgroupRefusals, ComputedRightOperands) {
  Schedule schedule = tiles({{"m", 64}, {"n", 64}});
  schedule.instruction = Instruction::wgmma;
  schedule.copy = CopyInstruction::tma;
  EXPECT_EQ(refused(chained_product(), schedule, "sm_90a").words,
            "a product of wgmma whose right operand is computed\n"
            "  why: it goes through shared memory, and the warpgroups of a block do not "
            "synchronise for that\n"
            "  try: instruction = mma_m16n8k16 and copy = cp_async");
}

TEST(WarpgroupRefusals, ComputedLeftOperands) {
  struct State {
    Tile sum, before;
  };
  ProgramBuilder b("refused");
  const Axis m = b.parallel_tiles("m", named("M")), n = b.tiles("n", named("N"));
  const Axis k = b.whole("k", 32);
  const Tensor q = b.input("a", DType::f16, {named("M"), 32});
  const Tensor keys = b.input("b", DType::f16, {named("N"), 32});
  const Tensor o = b.output("o", DType::f32, {named("M"), 32});
  const Tile nothing = cast(b.fill({m, n}, 0), DType::f16);
  const State last = b.loop(n, State{b.fill({m, k}, 0), nothing}, [&](const State& s) {
    const Tile key = load(keys(n, k));
    const Tile scores = dot(load(q(m, k)), transpose(key));
    return State{s.sum + dot(s.before, key), cast(scores, DType::f16)};
  });
  store(o(m, k), last.sum);
  const Program program = b.finish();
  Schedule schedule = tiles({{"m", 64}, {"n", 64}});
  schedule.instruction = Instruction::wgmma;
  schedule.copy = CopyInstruction::tma;
  const Refusal carried =
      refusal<SpecError>([&] { generate(program, schedule, find_target("sm_90a")); });
  EXPECT_TRUE(carried.own_line);
  EXPECT_EQ(carried.words,
            "a product of wgmma whose left operand is a computed 16-bit tile, but no cast\n"
            "  why: the cast from f32 is what packs a tile into a product's registers\n"
            "  try: compute in f32 and cast last");
}

TEST(WarpgroupRefusals, ShapesOfWarpgroups) {
  const Program program = attention_forward(head_dim(64));
  Schedule schedule = warpgroups(128, 64);
  schedule.softmax = Softmax::shared;
  EXPECT_EQ(refused(program, schedule, "sm_90a").words,
            "instruction wgmma with softmax = shared\n"
            "  why: its accumulators are in registers with a known layout\n"
            "  try: softmax = registers");
  struct Warps {
    int m, n;
  };
  for (const Warps warps : {Warps{16, 1}, {6, 1}, {8, 2}}) {
    schedule = warpgroups(16 * warps.m, 64);
    schedule.warps_n = warps.n;
    EXPECT_EQ(
        refused(program, schedule, "sm_90a").words,
        "instruction wgmma with " + std::to_string(warps.m) + " x " + std::to_string(warps.n) +
            " warps\n"
            "  why: one to three warpgroups of four warps divide rows and columns among them\n"
            "  try: warps_m = 8 and warps_n = 1");
  }
  schedule = warpgroups(64, 64);
  schedule.warps_n = 2;
  EXPECT_EQ(refused(program, schedule, "sm_90a").words,
            "instruction wgmma with warps_n = 2 and product_split = terms\n"
            "  why: a warpgroup adds up all terms of its columns\n"
            "  try: product_split = columns");
  schedule = warpgroups(128, 64);
  schedule.tiles["rows"] = 256;
  EXPECT_EQ(refused(program, schedule, "sm_90a").words,
            "a tile of 256 along rows\n"
            "  why: each of the 2 warpgroups makes 64 rows of a product\n"
            "  try: warps_m = 16");
}

TEST(WarpgroupRefusals, FieldsOfPersistentBlocks) {
  const Program program = attention_forward(head_dim(64));
  Schedule schedule = warpgroups(128, 64);
  schedule.outer_stages = 2;
  EXPECT_EQ(refused(program, schedule, "sm_90a").words,
            "outer_stages = 2 without persistent = true\n"
            "  why: a tile loaded outside loops has one slot, or two in a block that computes "
            "several tiles\n"
            "  try: 1");
  schedule.persistent = true;
  EXPECT_EQ(refused(program, schedule, "sm_90a").words, "nothing was refused");
  schedule.outer_stages = 3;
  EXPECT_EQ(refused(program, schedule, "sm_90a").words,
            "outer_stages = 3\n"
            "  why: a tile loaded outside loops has one slot, or two in a block that computes "
            "several tiles\n"
            "  try: 1");
  schedule = tiles({{"rows", 64}, {"cols", 64}});
  schedule.grid_order = GridOrder::grouped;
  EXPECT_EQ(refused(program, schedule).words,
            "grid_order = grouped without persistent = true\n"
            "  why: the hardware orders blocks by their three grid axes only\n"
            "  try: tiles_first or tiles_last");
  schedule.persistent = true;
  EXPECT_EQ(refused(program, schedule).words,
            "persistent = true without copy = tma\n"
            "  why: only the copy engine can load the next tile during the epilogue\n"
            "  try: persistent = false");
  schedule.persistent = false, schedule.grid_order = GridOrder::tiles_first;
  schedule.tile_scheduler = PersistentScheduler::dynamic;
  EXPECT_EQ(refused(program, schedule).words,
            "tile_scheduler = dynamic without persistent = true\n"
            "  why: a block that computes one tile needs no tile scheduler\n"
            "  try: tile_scheduler = serpentine");
  schedule = warpgroups(128, 64);
  schedule.persistent = true;
  AttentionSpec packed = head_dim(64);
  packed.layout = TensorLayout::thd;
  EXPECT_EQ(refused(attention_forward(packed), schedule, "sm_90a").words, "nothing was refused");
  schedule.multicast_blocks = 2;
  EXPECT_EQ(refused(attention_forward(packed), schedule, "sm_90a").words,
            "multicast_blocks = 2 with a ragged axis\n"
            "  why: neighbouring tiles of rows may lie in segments with other keys\n"
            "  try: multicast_blocks = 1");
  schedule.multicast_blocks = 1;
  EXPECT_EQ(refused(attention_backward_adding_keys(packed), schedule, "sm_90a").words,
            "persistent = true with the ragged axis cols\n"
            "  why: a tile behind the end of its segment would store to dq_sums\n"
            "  try: persistent = false");
  EXPECT_EQ(refused(products_of_listed_heads(), schedule, "sm_90a").words,
            "persistent = true with the ragged axis head\n"
            "  why: its segment is another one in each block, and tiles are counted in front of "
            "them\n"
            "  try: persistent = false");
  AttentionSpec checkered = head_dim(64);
  checkered.mask = chunked(40);
  EXPECT_EQ(refused(attention_forward(checkered), schedule, "sm_90a").words,
            "persistent = true for attention_forward\n"
            "  why: a block scans only once for tiles with visible keys\n"
            "  try: persistent = false");
}

TEST(WarpgroupRefusals, PositionsOfABlock) {
  const Program program = attention_forward(head_dim(64));
  Schedule schedule = warpgroups(128, 64);
  schedule.positions_per_block = 4, schedule.outer_stages = 2;
  EXPECT_EQ(refused(program, schedule, "sm_90a").words, "nothing was refused");
  schedule.positions_per_block = 0, schedule.outer_stages = 1;
  EXPECT_EQ(refused(program, schedule, "sm_90a").words,
            "positions_per_block = 0\n"
            "  why: a block computes at least one position\n"
            "  try: 1 or more");
  schedule.positions_per_block = 2, schedule.persistent = true;
  EXPECT_EQ(refused(program, schedule, "sm_90a").words,
            "positions_per_block = 2 with persistent = true\n"
            "  why: a persistent block computes all positions anyway\n"
            "  try: positions_per_block = 1");
  schedule.persistent = false, schedule.cluster_splits = 2;
  EXPECT_EQ(refused(program, schedule, "sm_90a").words,
            "positions_per_block = 2 with cluster_splits = 2\n"
            "  why: the blocks that split a loop have the same tile of rows, and all run at the "
            "same time\n"
            "  try: positions_per_block = 1");
  schedule = tiles({{"rows", 64}, {"cols", 64}});
  schedule.positions_per_block = 2;
  EXPECT_EQ(refused(program, schedule).words,
            "positions_per_block = 2 without copy = tma\n"
            "  why: the producer is what issues the next position's loads during a store\n"
            "  try: positions_per_block = 1");
  // What the tiles of one head see says nothing of another's.
  schedule = warpgroups(128, 64);
  schedule.positions_per_block = 2;
  AttentionSpec by_head = head_dim(64);
  by_head.mask = Mask("(q_idx + h) // 40 == kv_idx // 40");
  EXPECT_EQ(
      refused(attention_forward(by_head), schedule, "sm_90a").words,
      "positions_per_block = 2 for attention_forward\n"
      "  why: a block scans once for tiles with visible keys, and here they depend on the position "
      "along head\n"
      "  try: positions_per_block = 1");
}

TEST(WarpgroupRefusals, ChainsOfReductions) {
  Schedule schedule = tiles({{"rows", 64}, {"cols", 64}});
  schedule.reduction_chains = 3;
  EXPECT_EQ(refused(attention_forward(head_dim(64)), schedule).words,
            "reduction_chains = 3\n"
            "  why: the fragments of a row are divided among 1, 2 or 4 chains\n"
            "  try: 1");
}

TEST(WarpgroupRefusals, LoopsSplitOverACluster) {
  Schedule schedule = warpgroups(64, 64);
  const Program program = attention_forward(head_dim(64));
  schedule.cluster_splits = 2;
  EXPECT_EQ(refused(program, schedule, "sm_90a").words, "nothing was refused");
  schedule.cluster_splits = 3;
  EXPECT_EQ(refused(program, schedule, "sm_90a").words,
            "cluster_splits = 3\n"
            "  why: a loop is split over 2, 4 or 8 blocks of a cluster\n"
            "  try: 1, 2, 4 or 8");
  schedule.cluster_splits = 2;
  schedule.persistent = true;
  EXPECT_EQ(refused(program, schedule, "sm_90a").words,
            "cluster_splits = 2 with persistent = true\n"
            "  why: the blocks that split a loop have the same tile of rows, and all run at the "
            "same time\n"
            "  try: cluster_splits = 1");
  Schedule small = tiles({{"rows", 64}, {"cols", 64}});
  small.cluster_splits = 2;
  EXPECT_EQ(refused(program, small).words,
            "cluster_splits = 2 without copy = tma\n"
            "  why: only targets with copy = tma have clusters of blocks\n"
            "  try: cluster_splits = 1");
}

TEST(WarpgroupRefusals, BlocksThatShareLoads) {
  const Program program = attention_forward(head_dim(64));
  Schedule schedule = warpgroups(128, 64);
  schedule.persistent = true;
  schedule.multicast_blocks = 2;
  EXPECT_EQ(refused(program, schedule, "sm_90a").words, "nothing was refused");
  Schedule four = schedule;
  four.multicast_blocks = 4;
  EXPECT_EQ(refused(program, four, "sm_90a").words,
            "multicast_blocks = 4\n"
            "  why: two blocks of a cluster share what they load\n"
            "  try: 1 or 2");
  Schedule alone = schedule;
  alone.persistent = false;
  EXPECT_EQ(
      refused(program, alone, "sm_90a").words,
      "multicast_blocks = 2 without persistent = true\n"
      "  why: both blocks of a cluster have to compute neighbouring output tiles at the same time\n"
      "  try: persistent = true");
  Schedule small = tiles({{"rows", 64}, {"cols", 64}});
  small.multicast_blocks = 2;
  EXPECT_EQ(refused(program, small).words,
            "multicast_blocks = 2 without copy = tma\n"
            "  why: the producer of each block loads half of every tile for both blocks\n"
            "  try: multicast_blocks = 1");
  // Both load what either of them sees.
  AttentionSpec masked = head_dim(64);
  masked.mask = causal();
  for (const auto scheduler : {PersistentScheduler::serpentine, PersistentScheduler::dynamic}) {
    Schedule uneven = schedule;
    uneven.tile_scheduler = scheduler;
    EXPECT_EQ(refused(attention_forward(masked), uneven, "sm_90a").words, "nothing was refused");
  }
}

/// Row sums of products with keys in pages, from that of the row on, or from one looked up for the tile.
Program sums_from(bool looked_up, bool in_pages) {
  constexpr int page = 64;
  ProgramBuilder b("sums");
  const Axis rows = b.parallel_tiles("rows", named("M")),
             cols = b.tiles("cols", in_pages ? named("N") * page : named("N")),
             d = b.whole("d", 64);
  const Tensor q = b.input("q", DType::bf16, {named("M"), 64}),
               k = in_pages ? b.input("k", DType::bf16, {named("P"), page, 64})
                            : b.input("k", DType::bf16, {named("N"), 64}),
               pages = b.gathered_input("pages", DType::i32, {named("N")}),
               first = b.input("first", DType::i32, {named("M")});
  const Tensor y = b.output("y", DType::f32, {named("M")});
  const Tile query = load(q(rows, d));
  const Tile begin = looked_up ? reduce_min(load(first(rows)), rows) : index(rows);
  store(y(rows), b.loop(cols, b.fill({rows}, 0), [&](const Tile& sum) {
    const Tile at = gather(pages, {index(cols) / page});
    const Tile keys = load(in_pages ? k(at, index(cols) % page, d) : k(cols, d));
    const Tile scores = dot(query, transpose(keys));
    return sum + reduce_sum(where(index(cols) >= begin, scores, 0.f), cols);
  }));
  return b.finish();
}

TEST(WarpgroupRefusals, BlocksThatHaveNothingToShare) {
  Schedule schedule = warpgroups(128, 64);
  schedule.persistent = true;
  schedule.multicast_blocks = 2;
  EXPECT_EQ(refused(sums_from(false, false), schedule, "sm_90a").words, "nothing was refused");
  EXPECT_EQ(refused(sums_from(true, false), schedule, "sm_90a").words,
            "multicast_blocks = 2 for sums\n"
            "  why: the bounds of its loops are no arithmetic on the position of the output tile\n"
            "  try: multicast_blocks = 1");
  EXPECT_EQ(refused(sums_from(false, true), schedule, "sm_90a").words,
            "multicast_blocks = 2 for sums\n"
            "  why: the tiles that its loops load depend on the block's output tile\n"
            "  try: multicast_blocks = 1");
}

struct Carried {
  Tile largest, sum;
};

// What is carried has to mean the same, whichever maximum it was computed with.
TEST(WarpgroupRefusals, ALoopThatCannotBeSharedOut) {
  const auto words =
      [](const std::function<Carried(const Tile&, const Tile&, const Carried&, Axis)>& round) {
        ProgramBuilder b("carries");
        const Axis rows = b.parallel_tiles("rows", named("M")), cols = b.tiles("cols", named("N")),
                   d = b.whole("d", 64);
        const Tensor q = b.input("q", DType::bf16, {named("M"), 64}),
                     k = b.input("k", DType::bf16, {named("N"), 64});
        const Tensor y = b.output("y", DType::f32, {named("M")});
        const Tile query = load(q(rows, d));
        const Carried last =
            b.loop(cols, Carried{b.fill({rows}, -1e30), b.fill({rows}, 0).named("sum")},
                   [&](const Carried& s) {
                     const Tile scores = dot(query, transpose(load(k(cols, d))));
                     return round(scores, reduce_max(scores, cols), s, cols);
                   });
        store(y(rows), last.sum);
        Schedule schedule = warpgroups(64, 64);
        schedule.cluster_splits = 2;
        return refused(b.finish(), schedule, "sm_90a").words;
      };
  const auto grown = [](const Carried& s, const Tile& largest) {
    return maximum(s.largest, largest);
  };
  EXPECT_EQ(
      words([&](const Tile& scores, const Tile& largest, const Carried& s, Axis cols) {
        const Tile now = grown(s, largest);
        return Carried{now, s.sum * exp(s.largest - now) + reduce_sum(exp(scores - now), cols)};
      }),
      "nothing was refused");
  const std::string refusal =
      "cluster_splits = 2 for carries\n"
      "  why: its loop carries as sum neither a maximum, nor a sum, nor a sum that is rescaled as "
      "a maximum grows\n"
      "  try: cluster_splits = 1";
  // What is added does not follow the maximum; or another power of it; or the factor is none.
  EXPECT_EQ(words([&](const Tile& scores, const Tile& largest, const Carried& s, Axis cols) {
              const Tile now = grown(s, largest);
              return Carried{now, s.sum * exp(s.largest - now) + reduce_sum(scores, cols)};
            }),
            refusal);
  EXPECT_EQ(words([&](const Tile& scores, const Tile& largest, const Carried& s, Axis cols) {
              const Tile now = grown(s, largest);
              return Carried{
                  now, s.sum * exp((s.largest - now) * 2.f) + reduce_sum(exp(scores - now), cols)};
            }),
            refusal);
  EXPECT_EQ(words([&](const Tile& scores, const Tile& largest, const Carried& s, Axis cols) {
              return Carried{grown(s, largest), s.sum * 0.5f + reduce_sum(scores, cols)};
            }),
            refusal);
}

TEST(WarpgroupRefusals, PingPongOfOneWarpgroup) {
  Schedule schedule = warpgroups(64, 64);
  schedule.ping_pong = true;
  const Program program = attention_forward(head_dim(64));
  EXPECT_EQ(refused(program, schedule, "sm_90a").words,
            "ping_pong = true with one warpgroup\n"
            "  why: ping-pong needs a second warpgroup\n"
            "  try: ping_pong = false");
  schedule = warpgroups(128, 64);
  schedule.ping_pong = true;
  EXPECT_EQ(refused(program, schedule, "sm_90a").words, "nothing was refused");
}

TEST(WarpgroupRefusals, WhatTheCopyEngineAndWarpgroupsCannotRead) {
  const auto on_hopper = [](const std::function<Program()>& program) {
    Schedule schedule = tiles({{"m", 64}, {"n", 64}});
    schedule.instruction = Instruction::wgmma;
    schedule.copy = CopyInstruction::tma;
    return refusal<SpecError>([&] { generate(program(), schedule, find_target("sm_90a")); });
  };
  const Refusal strided = on_hopper([] {
    ProgramBuilder b("refused");
    const Axis m = b.parallel_tiles("m", named("M")), n = b.parallel_tiles("n", named("N"));
    const Axis k = b.whole("k", 32);
    const Tensor a = b.input("a", DType::f16, {named("M"), 32, 2});
    const Tensor bt = b.input("b", DType::f16, {named("N"), 32});
    const Tensor o = b.output("o", DType::f32, {named("M"), named("N")});
    store(o(m, n), dot(load(a(m, k, b.constant(1, DType::i32))), transpose(load(bt(n, k)))));
    return b.finish();
  });
  EXPECT_TRUE(strided.own_line);
  EXPECT_EQ(strided.words,
            "a product of a along dimension 1\n"
            "  why: bulk copies need neighbouring elements in the last axis of the tile\n"
            "  try: index the last dimension with the tile's last axis, and transpose the tile");
}

TEST(WarpgroupRefusals, WarpgroupsWithNothingToMultiply) {
  Schedule schedule = tiles({{"rows", 64}, {"cols", 32}});
  schedule.instruction = Instruction::wgmma;
  schedule.copy = CopyInstruction::tma;
  EXPECT_EQ(refused(row_softmax(), schedule, "sm_90a").words,
            "copy = tma for row_softmax\n"
            "  why: it has no product whose operands the copy engine could load\n"
            "  try: instruction = mma_m16n8k16 and copy = cp_async");
}

}  // namespace
}  // namespace flashcore
