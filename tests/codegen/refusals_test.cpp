// What code generation refuses, word by word: with the numbers, the author's line, and what would
// work.
#include "tests/codegen/support/refusals.h"

#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "codegen/generate.h"
#include "codegen/why_not.h"
#include "templates/attention.h"
#include "tests/codegen/support/programs.h"

namespace flashcore {
namespace {

/// A program that contradicts what code generation can do, under a schedule that is fine.
Refusal impossible(const std::function<Program()>& program, const Schedule& schedule) {
  return refusal<SpecError>([&] { generate(program(), schedule, find_target("sm_80")); });
}

TEST(Refusals, UnknownTargets) {
  EXPECT_EQ(refusal<ScheduleError>([] { find_target("sm_70"); }).words,
            "target \"sm_70\"\n"
            "  why: FlashCore does not generate for it\n"
            "  try: one of sm_75, sm_80, sm_86, sm_87, sm_89, sm_90, sm_90a, sm_100, sm_103, "
            "sm_110, sm_120, "
            "sm_121");
  EXPECT_EQ(
      refusal<ScheduleError>([] { target_for_device(7, 0); }).words,
      "a GPU of compute capability 7.0\n"
      "  why: FlashCore does not generate for it\n"
      "  try: a GPU that runs one of sm_75, sm_80, sm_86, sm_87, sm_89, sm_90, sm_90a, sm_100, "
      "sm_103, sm_110, sm_120, sm_121");
  EXPECT_EQ(target_for_device(7, 5).name, "sm_75");
  EXPECT_EQ(target_for_device(8, 8).name, "sm_87");
  EXPECT_EQ(target_for_device(9, 0).name, "sm_90a");
  EXPECT_EQ(target_for_device(9, 1).name, "sm_90");  // what "a" stands for is of one chip
}

TEST(Refusals, InstructionsATargetLacks) {
  const Program program = attention_forward(head_dim(64));
  Target old = find_target("sm_80");
  old.name = "sm_70";
  old.async_copy = false;
  EXPECT_EQ(refusal<ScheduleError>([&] { generate(program, {}, old); }).words,
            "copy cp_async on sm_70\n"
            "  why: the target does not have it\n"
            "  try: copy = vector, or a target from sm_80 up");
  old.mma_m16n8k16 = false;
  EXPECT_EQ(refusal<ScheduleError>([&] { generate(program, {}, old); }).words,
            "instruction mma_m16n8k16 on sm_70\n"
            "  why: the target does not have it\n"
            "  try: instruction = wmma with softmax = shared, or a target from sm_80 up");
}

TEST(Refusals, OpaqueBlocks) {
  Schedule schedule = tiles({{"rows", 64}, {"cols", 32}});
  schedule.instruction = Instruction::wmma;
  EXPECT_EQ(refused(attention_forward(head_dim(64)), schedule).words,
            "instruction wmma with softmax = registers\n"
            "  why: which lane holds which element of its fragments is not documented\n"
            "  try: softmax = shared");
  schedule.softmax = Softmax::shared;
  EXPECT_EQ(refused(attention_forward(head_dim(64)), schedule).words, "nothing was refused");
  schedule.copy = CopyInstruction::vector;
  EXPECT_EQ(refused(attention_forward(head_dim(64)), schedule, "sm_75").words,
            "bf16 on sm_75\n"
            "  why: its tensor cores take f16 only, and it has no conversion from f32 to bf16\n"
            "  try: f16, or a target from sm_80 up");
  AttentionSpec half = head_dim(64);
  half.dtype = DType::f16;
  EXPECT_EQ(refused(attention_forward(half), schedule, "sm_75").words, "nothing was refused");
}

TEST(Refusals, ResidentBlocks) {
  const Program program = attention_forward(head_dim(64));
  Schedule schedule = tiles({{"rows", 64}, {"cols", 64}});
  schedule.blocks_per_processor = 17;
  EXPECT_EQ(refused(program, schedule).words,
            "17 blocks of 128 threads a multiprocessor\n"
            "  why: sm_80 holds 2048 threads\n"
            "  try: blocks_per_processor = 16");
  schedule.blocks_per_processor = 0;
  EXPECT_EQ(refused(program, schedule, "sm_120").words,
            "0 blocks of 128 threads a multiprocessor\n"
            "  why: sm_120 holds 1536 threads\n"
            "  try: blocks_per_processor = 12");
}

TEST(Refusals, SharedMemoryWithWhatFits) {
  const Program program = attention_forward(head_dim(128));
  Schedule schedule = tiles({{"rows", 128}, {"cols", 128}});
  EXPECT_EQ(refused(program, schedule, "sm_89").words,
            "attention_forward needs 163840 bytes of shared memory a block\n"
            "  why: sm_89 allows 101376\n"
            "  try: stages = 1, or a tile of 64 along cols");
  Target small = find_target("sm_89");
  small.shared_per_block = 20000;
  EXPECT_EQ(refusal<ScheduleError>([&] { generate(program, schedule, small); }).words,
            "attention_forward needs 163840 bytes of shared memory a block\n"
            "  why: sm_89 allows 20000\n"
            "  try: smaller tiles and fewer stages together");
  // What is named does fit.
  schedule.stages = 1;
  EXPECT_EQ(refused(program, schedule, "sm_89").words, "nothing was refused");
  schedule.stages = 2;
  schedule.tiles["cols"] = 64;
  EXPECT_EQ(refused(program, schedule, "sm_89").words, "nothing was refused");
}

TEST(Refusals, TileSizes) {
  const Program program = attention_forward(head_dim(64));
  EXPECT_EQ(refused(program, tiles({{"rows", 64}})).words,
            "no tile size for axis cols\n"
            "  why: program attention_forward cuts it into tiles\n"
            "  try: schedule.tiles[\"cols\"] = 64");
  for (const int size : {0, -16, 24, 1040})
    EXPECT_EQ(refused(program, tiles({{"rows", 64}, {"cols", size}})).words,
              "tile of " + std::to_string(size) +
                  " along cols\n"
                  "  why: tensor cores and swizzled shared memory work in steps of 16\n"
                  "  try: a multiple of 16 up to 1024");
  EXPECT_EQ(refused(program, tiles({{"rows", 64}, {"cols", 64}, {"d", 64}})).words,
            "a tile size for \"d\"\n"
            "  why: program attention_forward has no tiled axis of that name\n"
            "  try: its tiled axes are rows, cols");
}

TEST(Refusals, WarpsAndStages) {
  const Program program = attention_forward(head_dim(64));
  Schedule schedule = tiles({{"rows", 64}, {"cols", 64}});
  schedule.stages = 0;
  EXPECT_EQ(refused(program, schedule).words,
            "0 stages\n"
            "  why: a pipeline has 1 to 8 tiles in flight or in use\n"
            "  try: 2 or 3");
  schedule = tiles({{"rows", 64}, {"cols", 64}});
  schedule.warps_m = 8;
  const Refusal rows = refused(program, schedule);
  EXPECT_EQ(rows.words,
            "a tile of 64 along rows\n"
            "  why: the rows or columns of a warp in a product are a multiple of 16, so with "
            "warps_m = 8 the tile must "
            "be a multiple of 128\n"
            "  try: a tile of 128, or fewer warps");
  schedule.warps_m = 4;
  schedule.warps_n = 3;
  EXPECT_EQ(refused(program, schedule).words,
            "a tile of 64 along cols\n"
            "  why: the rows or columns of a warp in a product are a multiple of 16, so with "
            "warps_n = 3 the tile must "
            "be a multiple of 48\n"
            "  try: a tile of 96, or fewer warps");
}

// Partials of different warps are combined through shared memory: nothing is refused.
TEST(Refusals, NoAxesThatWarpsCut) {
  Schedule schedule = tiles({{"rows", 64}, {"cols", 32}});
  schedule.warps_n = 2;
  schedule.warps_m = 2;
  EXPECT_EQ(refused(attention_forward(head_dim(64)), schedule).words, "nothing was refused");
  schedule.tiles["cols"] = 48;
  EXPECT_EQ(refused(attention_forward(head_dim(64)), schedule).words,
            "a tile of 48 along cols\n"
            "  why: the rows or columns of a warp in a product are a multiple of 16, so with "
            "warps_n = 2 the tile must "
            "be a multiple of 32\n"
            "  try: a tile of 64, or fewer warps");
  schedule = tiles({{"rows", 64}, {"cols", 64}});
  EXPECT_EQ(refused(column_reductions(), schedule).words, "nothing was refused");
}

TEST(Refusals, EveryReasonOfASpec) {
  AttentionSpec spec = head_dim(0);
  spec.head_dim_v = 600;
  spec.dtype = DType::f32;
  spec.heads = 6;
  spec.kv_heads = 4;
  spec.q_len = 0;
  EXPECT_EQ(
      refusal<SpecError>([&] { attention_forward(spec); }).words,
      "5 mistakes in an attention spec\n"
      "  why: \n"
      "    head_dim = 0: must be at least 1; the last dimension of the arrays\n"
      "    head_dim_v = 600: must be at most 512; there is no schedule for larger ones\n"
      "    products = full with dtype = f32 and head_dim = 600: every f32 is split in three parts, "
      "for which there is room up to 256; products = tf32\n"
      "    heads = 6 is not a multiple of kv_heads = 4: every key head serves the same number of "
      "query heads; a number of key heads that divides 6\n"
      "    q_len = 0: a compiled-in length is at least 1; leave it open for tensors that may be "
      "empty\n"
      "  try: change what each line names");
  EXPECT_EQ(refusal<SpecError>([] { attention_forward(head_dim(600)); }).words,
            "head_dim = 600\n"
            "  why: must be at most 512\n"
            "  try: there is no schedule for larger ones");
  spec = head_dim(64);
  spec.score.text = "score ? 1 : 2";
  EXPECT_EQ(refusal<SpecError>([&] { attention_forward(spec); }).words.find("contradicts"),
            std::string::npos);
  spec = head_dim(64);
  spec.kv_heads = 4;
  EXPECT_EQ(check(spec), std::vector<std::string>{
                             "kv_heads = 4 without heads: neither says enough alone; give both"});
  spec.heads = -1;
  EXPECT_EQ(check(spec),
            std::vector<std::string>{
                "heads = -1, kv_heads = 4: must not be negative; leave out what the arrays say"});
}

// ---- programs

struct Pieces {
  ProgramBuilder b{"refused"};
  Axis m = b.parallel_tiles("m", named("M")), n = b.tiles("n", named("N")), k = b.whole("k", 32);
  Tensor a = b.input("a", DType::f16, {named("M"), 32}),
         bt = b.input("b", DType::f16, {named("N"), 32});
  Tensor o = b.output("o", DType::f32, {named("M"), 32});
};

const Schedule fine = tiles({{"m", 64}, {"n", 32}});

TEST(Refusals, TransposedRegisters) {
  const Refusal transposed = impossible(
      [] {
        ProgramBuilder b("refused");
        const Axis m = b.parallel_tiles("m", named("M")), k = b.whole("k", 32);
        const Tensor a = b.input("a", DType::f32, {named("M"), 32});
        const Tensor transposed = b.output("transposed", DType::f32, {32, named("M")});
        store(transposed(k, m), transpose(load(a(m, k)) * 2));
        return b.finish();
      },
      tiles({{"m", 64}}));
  EXPECT_TRUE(transposed.own_line);
  EXPECT_EQ(transposed.words,
            "a transpose of a tile in registers\n"
            "  why: only a product can read its operand transposed\n"
            "  try: load or build the tile with its axes in the other order");
}

TEST(Refusals, LoadsThatCannotBePipelined) {
  const Refusal position = impossible(
      [] {
        Pieces p;
        const Tensor pages = p.b.input("pages", DType::f16, {named("P"), named("N"), 32});
        const Tensor table = p.b.input("table", DType::i32, {named("P")});
        store(p.o(p.m, p.k), p.b.loop(p.n, p.b.fill({p.m, p.k}, 0), [&](const Tile& s) {
          const Tile page = load(table(p.b.constant(3, DType::i32)));
          const Tile probs = dot(load(p.a(p.m, p.k)), transpose(load(pages(page, p.n, p.k))));
          return s + dot(cast(probs, DType::f16), load(p.bt(p.n, p.k)));
        }));
        return p.b.finish();
      },
      fine);
  EXPECT_TRUE(position.own_line);
  EXPECT_EQ(position.words,
            "load of pages at a position computed in the loop\n"
            "  why: copies are issued iterations ahead, when that position is not known yet\n"
            "  try: compute it from parallel axes and scalars outside the loop");

  Schedule nested = fine;
  nested.tiles["h"] = 16;
  const Refusal loops = impossible(
      [] {
        Pieces p;
        const Axis h = p.b.tiles("h", named("H"));
        p.b.input("x", DType::f16, {named("H"), 32});
        store(p.o(p.m, p.k), p.b.loop(h, p.b.fill({p.m, p.k}, 0), [&](const Tile& outer) {
          return outer + p.b.loop(p.n, p.b.fill({p.m, p.k}, 0), [&](const Tile& s) {
            const Tile probs = dot(load(p.a(p.m, p.k)), transpose(load(p.bt(p.n, p.k))));
            return s + dot(cast(probs, DType::f16), load(p.bt(p.n, p.k)));
          });
        }));
        return p.b.finish();
      },
      nested);
  EXPECT_TRUE(loops.own_line);
  EXPECT_EQ(loops.words,
            "a loop over n inside another loop\n"
            "  why: products in nested loops cannot be pipelined\n"
            "  try: make the outer axis a parallel one");
}

TEST(Refusals, CopiesOfRowsThatDoNotLieTogether) {
  const Refusal strided = impossible(
      [] {
        ProgramBuilder b("refused");
        const Axis m = b.parallel_tiles("m", named("M")), n = b.parallel_tiles("n", named("N"));
        const Axis k = b.whole("k", 32);
        const Tensor a = b.input("a", DType::f16, {named("M"), 32, 2});
        const Tensor bt = b.input("b", DType::f16, {named("N"), 32});
        const Tensor o = b.output("o", DType::f32, {named("M"), named("N")});
        store(o(m, n), dot(load(a(m, k, b.constant(1, DType::i32))), transpose(load(bt(n, k)))));
        return b.finish();
      },
      fine);
  EXPECT_TRUE(strided.own_line);
  EXPECT_EQ(strided.words,
            "a product of a along dimension 1\n"
            "  why: 16-byte copies need neighbouring elements in the last axis of the tile\n"
            "  try: index the last dimension with the tile's last axis, and transpose the tile");
}

TEST(Refusals, ExtremesOfAVectorThatWarpsShare) {
  ProgramBuilder b("refused");
  const Axis m = b.parallel_tiles("m", named("M")), k = b.whole("k", 32), n = b.whole("n", 32);
  const Tensor x = b.input("x", DType::bf16, {named("M"), 32});
  const Tensor w = b.input("w", DType::bf16, {32, 32});
  const Tensor o = b.output("o", DType::f32, {named("M"), 32});
  const Tile product = dot(load(x(m, k)), load(w(k, n)));
  store(o(m, n), product / reduce_max(reduce_max(product, n), m));
  const Program program = b.finish();
  EXPECT_EQ(refused(program, tiles({{"m", 64}})).words,
            "a reduction of m to a scalar with 4 warps along it\n"
            "  why: one warp computes it, and other operations divide the vector among warps\n"
            "  try: warps_m = 1 and warps_n = 1");
}

TEST(Refusals, WhyNotSaysTheSame) {
  const Program program = attention_forward(head_dim(64));
  const Schedule good = tiles({{"rows", 64}, {"cols", 64}});
  EXPECT_TRUE(why_not(program, good, find_target("sm_80")).empty());
  EXPECT_EQ(why_not(program, tiles({{"rows", 64}}), find_target("sm_80")),
            std::vector<std::string>{"no tile size for axis cols\n"
                                     "  why: program attention_forward cuts it into tiles\n"
                                     "  try: schedule.tiles[\"cols\"] = 64"});
}

}  // namespace
}  // namespace flashcore
