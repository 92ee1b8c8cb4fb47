// What explain() says, word for word.
#include "codegen/explain.h"

#include <gtest/gtest.h>

#include "templates/attention.h"
#include "tests/codegen/support/programs.h"
#include "tests/codegen/support/visits.h"

namespace flashcore {
namespace {

std::string explained(const Program& program, bool peel = false, bool descending = true) {
  Schedule schedule;
  schedule.tiles = {{"rows", 64}, {"cols", 32}};
  schedule.peel_masks = peel;
  schedule.descending = descending;
  return explain(program, schedule, find_target("sm_80"));
}

TEST(Explain, LinearMasksBoundTheLoop) {
  const Program window = masked_maximum([](const Positions& p) {
    const Tile at = p.row + (p.col_count - p.row_count);
    return p.col <= at && p.col * 2 > at - 100;
  });
  EXPECT_EQ(explained(window),
            "loop over cols: tiles of 32, from the last to the first\n"
            "  bounded: cols <= rows + length(cols) - length(rows)\n"
            "  bounded: 2 * cols >= rows + length(cols) - length(rows) - 99\n"
            "  empty tiles are not visited: they change nothing\n"
            "  full tiles run without the mask, after one test a tile\n");
}

TEST(Explain, OtherMasksAreScanned) {
  const Program mixed = masked_maximum([](const Positions& p) {
    return p.col <= p.row && (p.row / 50 == p.col / 50 || !(abs(p.row - p.col) % 3 > 1));
  });
  EXPECT_EQ(
      explained(mixed, true, false),
      "loop over cols: tiles of 32, from the first to the last\n"
      "  bounded: cols <= rows\n"
      "  scanned: rows // 50 == cols // 50 | ~(abs(rows - cols) % 3 > 1)\n"
      "  bounded: cols <= length(cols) - 1\n"
      "  empty tiles are not visited: they change nothing\n"
      "  full tiles run without the mask, after one test a tile\n"
      "not taken: peel_masks = true in the loop over cols: tiles that a scan finds to be full "
      "need not be neighbours\n");
}

TEST(Explain, AnOrderThatIsKept) {
  const std::string first = "loop over cols: tiles of 32, from the first to the last";
  const auto begins = [](const Program& program, bool descending, const std::string& line) {
    EXPECT_EQ(explained(program, false, descending).substr(0, line.size()), line);
  };
  begins(last_segment(LoopOrder::sequential), true, first + ", whose order may matter\n");
  begins(last_segment(LoopOrder::sequential), false, first + "\n");
  begins(last_segment(LoopOrder::unordered), true,
         "loop over cols: tiles of 32, from the last to the first\n");
}

TEST(Explain, PositionsOfOneChunkSayNothingAhead) {
  Schedule schedule;
  schedule.tiles = {{"t", 64}, {"dv", 32}};
  EXPECT_EQ(explain(linear_attention(), schedule, find_target("sm_80")),
            "loop over t: tiles of 64, from the first to the last, whose order may matter\n"
            "  not analysed: t >= s\n"
            "  empty tiles are visited: they change what the loop carries\n"
            "  every tile that is visited is masked\n");
}

TEST(Explain, AMaskByDataOfTheLoopSaysNothingAhead) {
  ProgramBuilder b("by_data");
  const Axis rows = b.parallel_tiles("rows", Extent("M")), cols = b.tiles("cols", Extent("N"));
  const Tensor s = b.input("s", DType::f32, {Extent("M"), Extent("N")});
  const Tensor y = b.output("y", DType::f32, {Extent("M")});
  const Tile last = b.loop(cols, b.fill({rows}, lowest), [&](const Tile& largest) {
    const Tile x = load(s(rows, cols)).named("x");
    return maximum(largest, reduce_max(where(x > 0, x, -infinity), cols));
  });
  store(y(rows), last);
  EXPECT_EQ(explained(b.finish(), true),
            "loop over cols: tiles of 32, from the last to the first\n"
            "  not analysed: x > 0\n"
            "  bounded: cols <= length(cols) - 1\n"
            "  tiles outside the bounds are not visited, all others are\n"
            "  every tile that is visited is masked\n");
}

TEST(Explain, PositionsGoByTheNamesTheyAreGiven) {
  AttentionSpec spec;
  spec.head_dim = 64;
  spec.mask = causal();
  Schedule schedule;
  schedule.tiles = {{"rows", 64}, {"cols", 64}};
  schedule.peel_masks = true;
  EXPECT_EQ(explain(attention_forward(spec), schedule, find_target("sm_80"),
                    {{"rows", "q_idx"},
                     {"cols", "kv_idx"},
                     {"length(rows)", "q_len"},
                     {"length(cols)", "kv_len"}}),
            "loop over cols: tiles of 64, from the last to the first\n"
            "  bounded: kv_idx <= q_idx + kv_len - q_len\n"
            "  empty tiles are not visited: they change nothing\n"
            "  full tiles run without the mask, in a loop of their own\n");
}

TEST(Explain, WhatHasNoMask) {
  EXPECT_EQ(explain(elementwise(64), {.tiles = {{"rows", 64}}}, find_target("sm_80")),
            "no loops\n");
  AttentionSpec spec;
  spec.head_dim = 64;
  spec.kv_len = 256;
  Schedule schedule;
  schedule.tiles = {{"rows", 64}, {"cols", 64}};
  EXPECT_EQ(explain(attention_forward(spec), schedule, find_target("sm_80")),
            "loop over cols: tiles of 64, from the last to the first\n"
            "  no mask: every tile is visited\n");
}

std::string numerics(AttentionSpec spec, const Schedule& schedule, const char* target) {
  const std::string text = explain(attention_forward(spec), schedule, find_target(target));
  const std::size_t at = text.find("numerics: ");
  return at == std::string::npos ? "" : text.substr(at);
}

TEST(Explain, NumericsThatTakeEffect) {
  Schedule schedule;
  schedule.tiles = {{"rows", 64}, {"cols", 64}};
  EXPECT_EQ(numerics({.head_dim = 64}, schedule, "sm_80"), "");
  EXPECT_EQ(numerics({.head_dim = 64, .score = softcap(30)}, schedule, "sm_80"),
            "numerics: the softmax subtracts a constant instead of the maximum of a row, since "
            "scores are bounded\n");
  schedule.warps_m = schedule.warps_n = 2;
  EXPECT_EQ(numerics({.head_dim = 64}, schedule, "sm_80"),
            "numerics: the partial sums of 2 warps are combined (warps_n)\n");
}

TEST(Explain, NumericsOfHopper) {
  Schedule schedule;
  schedule.tiles = {{"rows", 64}, {"cols", 64}};
  schedule.instruction = Instruction::wgmma;
  schedule.copy = CopyInstruction::tma;
  schedule.cluster_splits = 2;
  EXPECT_EQ(numerics({.head_dim = 64}, schedule, "sm_90a"),
            "numerics: the partial sums of 2 blocks are combined (cluster_splits)\n");
  schedule.cluster_splits = 1;
  schedule.sums_by_products = true;
  EXPECT_EQ(numerics({.head_dim = 64}, schedule, "sm_90a"),
            "numerics: a product sums up the softmax weights, rounded as it takes them "
            "(sums_by_products)\n");
}

std::string refusals(const Program& program, const Schedule& schedule, const char* target) {
  const std::string text = explain(program, schedule, find_target(target));
  const std::size_t at = text.find("not taken: ");
  return at == std::string::npos ? "" : text.substr(at);
}
std::string refusals(const AttentionSpec& spec, const Schedule& schedule, const char* target) {
  return refusals(attention_forward(spec), schedule, target);
}

/// Both products of an iteration read the same tile, so that the second, beside the next
/// iteration, would hold its slot.
Program one_tile_twice() {
  ProgramBuilder b("one_tile_twice");
  const Extent m("M"), n("N");
  const Axis rows = b.parallel_tiles("rows", m), cols = b.tiles("cols", n), d = b.whole("d", 64);
  const Tensor q = b.input("q", DType::bf16, {m, 64}), k = b.input("k", DType::bf16, {n, 64}),
               out = b.output("out", DType::f32, {m, 64});
  const Tile query = load(q(rows, d));
  const Tile sum = b.loop(cols, b.fill({rows, d}, 0), [&](const Tile& before) {
    const Tile keys = load(k(cols, d));
    return before + dot(cast(tanh(dot(query, transpose(keys))), DType::bf16), keys);
  });
  store(out(rows, d), sum);
  return b.finish();
}

TEST(Explain, WhatNeedsProductsInFlight) {
  Schedule schedule;
  schedule.tiles = {{"rows", 64}, {"cols", 64}};
  schedule.ping_pong = schedule.lazy_scaling = true;
  const std::string why = "warps wait for each product of mma_m16n8k16 where they issue it\n";
  EXPECT_EQ(refusals(AttentionSpec{.head_dim = 64}, schedule, "sm_80"),
            "not taken: ping_pong = true: " + why + "not taken: lazy_scaling = true: " + why);
}

TEST(Explain, WhyProductsDoNotOverlap) {
  Schedule schedule;
  schedule.tiles = {{"rows", 128}, {"cols", 64}};
  schedule.instruction = Instruction::wgmma;
  schedule.copy = CopyInstruction::tma;
  schedule.warps_m = 8;
  schedule.ping_pong = schedule.lazy_scaling = true;
  EXPECT_EQ(refusals(AttentionSpec{.head_dim = 64}, schedule, "sm_90a"), "");
  EXPECT_EQ(refusals(one_tile_twice(), schedule, "sm_90a"),
            "not taken: overlap_products = true in the loop over cols: 2 iterations hold a slot of "
            "k, which needs another to be filled and has 2, and every product needs the one in "
            "front of it\n"
            "not taken: ping_pong = true: no loop has products in flight together\n"
            "not taken: lazy_scaling = true: no loop has products in flight together\n");
  schedule.overlap_products = false;
  EXPECT_EQ(refusals(AttentionSpec{.head_dim = 64}, schedule, "sm_90a"),
            "not taken: ping_pong = true: overlap_products = false\n"
            "not taken: lazy_scaling = true: overlap_products = false\n");
  schedule = {.tiles = {{"rows", 128}, {"cols", 64}}, .warps_m = 8};
  schedule.instruction = Instruction::wgmma;
  schedule.copy = CopyInstruction::tma;
  schedule.rescale_before_product = true;
  EXPECT_EQ(refusals(AttentionSpec{.head_dim = 64, .score = softcap(30)}, schedule, "sm_90a"),
            "not taken: rescale_before_product = true: no loop with products in flight rescales a "
            "sum\n");
  schedule.rescale_before_product = false;
  schedule.rescale_before_wait = true;
  EXPECT_EQ(refusals(AttentionSpec{.head_dim = 64}, schedule, "sm_90a"),
            "not taken: rescale_before_wait = true: rescale_before_product = false\n");
}

TEST(Explain, WhatElseIsNotTaken) {
  Schedule schedule;
  schedule.tiles = {{"rows", 128}, {"cols", 64}};
  schedule.instruction = Instruction::wgmma;
  schedule.copy = CopyInstruction::tma;
  schedule.warps_m = 8;
  schedule.keep_operands = schedule.sums_by_products = true;
  EXPECT_EQ(refusals(AttentionSpec{.head_dim = 64, .lse = true}, schedule, "sm_90a"),
            "not taken: sums_by_products = true: the sum decides what an f32 output holds, and its "
            "rounding would show there\n"
            "");
}

}  // namespace
}  // namespace flashcore
