// What code generation refuses, word by word: with the numbers, the author's line, and what would
// work.
#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "codegen/generate.h"
#include "codegen/why_not.h"
#include "templates/attention.h"
#include "tests/codegen/support/programs.h"

namespace flashcore {
namespace {

Extent named(const char* name) { return Extent(std::string(name)); }

Schedule tiles(std::map<std::string, int> sizes) {
  Schedule schedule;
  schedule.tiles = std::move(sizes);
  return schedule;
}

/// The message, its place cut off; `own_line` says whether it named a place in an author's file.
struct Refusal {
  std::string words;
  bool own_line = false;
};

template <class Kind>
Refusal refusal(const std::function<void()>& attempt) {
  try {
    attempt();
  } catch (const Kind& error) {
    Refusal refusal{error.what()};
    const Location& where = error.complaint().where;
    if (!where.known()) return refusal;
    refusal.own_line = where.file.find("tests/codegen/") != std::string::npos;
    const std::size_t at = refusal.words.find("\n  at:  ");
    refusal.words.erase(at, refusal.words.find('\n', at + 1) - at);
    return refusal;
  }
  return {"nothing was refused"};
}

Refusal refused(const Program& program, const Schedule& schedule, const char* target = "sm_80") {
  return refusal<ScheduleError>([&] { generate(program, schedule, find_target(target)); });
}

/// A program that contradicts what code generation can do, under a schedule that is fine.
Refusal impossible(const std::function<Program()>& program, const Schedule& schedule) {
  return refusal<SpecError>([&] { generate(program(), schedule, find_target("sm_80")); });
}

AttentionSpec head_dim(int dim) {
  AttentionSpec spec;
  spec.head_dim = dim;
  return spec;
}

TEST(Refusals, UnknownTargets) {
  EXPECT_EQ(
      refusal<ScheduleError>([] { find_target("sm_70"); }).words,
      "target \"sm_70\"\n"
      "  why: FlashCore does not generate for it\n"
      "  try: one of sm_75, sm_80, sm_86, sm_87, sm_89, sm_90, sm_90a, sm_100, sm_103, sm_110, sm_120, "
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
            "  why: which lane holds which element of its blocks is not documented\n"
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

Schedule warpgroups(int rows, int cols) {
  Schedule schedule = tiles({{"rows", rows}, {"cols", cols}});
  schedule.instruction = Instruction::wgmma;
  schedule.copy = CopyInstruction::tma;
  schedule.warps_m = rows / 16;
  return schedule;
}

TEST(Refusals, WarpgroupsAndTheCopyEngineComeTogether) {
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
            "  why: tiles come from the copy engine to the warpgroups that multiply them, and no other way\n"
            "  try: both or neither");
  schedule.instruction = Instruction::wgmma;
  schedule.copy = CopyInstruction::cp_async;
  EXPECT_EQ(refused(program, schedule, "sm_90a").words,
            "instruction wgmma without copy = tma\n"
            "  why: tiles come from the copy engine to the warpgroups that multiply them, and no other way\n"
            "  try: both or neither");
}

TEST(Refusals, ShapesOfWarpgroups) {
  const Program program = attention_forward(head_dim(64));
  Schedule schedule = warpgroups(128, 64);
  schedule.softmax = Softmax::shared;
  EXPECT_EQ(refused(program, schedule, "sm_90a").words,
            "instruction wgmma with softmax = shared\n"
            "  why: its sums are in registers of a known order\n"
            "  try: softmax = registers");
  struct Warps {
    int m, n;
  };
  for (const Warps warps : {Warps{16, 1}, {6, 1}, {4, 2}}) {
    schedule = warpgroups(16 * warps.m, 64);
    schedule.warps_n = warps.n;
    EXPECT_EQ(refused(program, schedule, "sm_90a").words,
              "instruction wgmma with " + std::to_string(warps.m) + " x " + std::to_string(warps.n) +
                  " warps\n"
                  "  why: one to three warpgroups of four warps each lie along the rows\n"
                  "  try: warps_m = 8 and warps_n = 1");
  }
  schedule = warpgroups(128, 64);
  schedule.tiles["rows"] = 256;
  EXPECT_EQ(refused(program, schedule, "sm_90a").words,
            "a tile of 256 along rows\n"
            "  why: each of the 2 warpgroups makes 64 rows of a product\n"
            "  try: warps_m = 16");
  schedule.tiles["rows"] = 128;
  schedule.tiles["cols"] = 272;
  EXPECT_EQ(refused(program, schedule, "sm_90a").words,
            "a tile of 272 along cols\n"
            "  why: a product of wgmma has up to 256 columns\n"
            "  try: a tile of 256");
}

TEST(Refusals, SharesOfRegisters) {
  const Program program = attention_forward(head_dim(64));
  const auto words = [&](int producer, int consumers, int used) {
    return std::to_string(producer) + " registers for a thread of the producer and " +
           std::to_string(consumers) +
           " for one of the consumers\n"
           "  why: each is a multiple of 8 from 24 to 240, and a block has 65536, not " +
           std::to_string(used) +
           "\n"
           "  try: 0 for both, which shares out what there is";
  };
  Schedule schedule = warpgroups(128, 64);
  schedule.producer_registers = 40;
  schedule.consumer_registers = 240;
  EXPECT_EQ(refused(program, schedule, "sm_90a").words, words(40, 240, 128 * 40 + 256 * 240));
  schedule.producer_registers = 20;
  EXPECT_EQ(refused(program, schedule, "sm_90a").words, words(20, 240, 128 * 20 + 256 * 240));
  schedule.producer_registers = 24;
  EXPECT_EQ(refused(program, schedule, "sm_90a").words, "nothing was refused");
  schedule.consumer_registers = 236;
  EXPECT_EQ(refused(program, schedule, "sm_90a").words, words(24, 236, 128 * 24 + 256 * 236));
}

TEST(Refusals, FieldsOfPersistentBlocks) {
  const Program program = attention_forward(head_dim(64));
  Schedule schedule = warpgroups(128, 64);
  schedule.outer_stages = 2;
  EXPECT_EQ(refused(program, schedule, "sm_90a").words,
            "outer_stages = 2 without persistent = true\n"
            "  why: a tile loaded outside loops has one slot, or two where a block works through several "
            "tiles\n"
            "  try: 1");
  schedule.persistent = true;
  EXPECT_EQ(refused(program, schedule, "sm_90a").words, "nothing was refused");
  schedule.outer_stages = 3;
  EXPECT_EQ(refused(program, schedule, "sm_90a").words,
            "outer_stages = 3\n"
            "  why: a tile loaded outside loops has one slot, or two where a block works through several "
            "tiles\n"
            "  try: 1");
  schedule = tiles({{"rows", 64}, {"cols", 64}});
  schedule.grid_order = GridOrder::sections;
  EXPECT_EQ(refused(program, schedule).words,
            "grid_order = sections without persistent = true\n"
            "  why: the hardware numbers blocks by three axes and no more\n"
            "  try: tiles_first or tiles_last");
  schedule.persistent = true;
  EXPECT_EQ(refused(program, schedule).words,
            "persistent = true without copy = tma\n"
            "  why: what a block loads ahead for its next tile the copy engine brings\n"
            "  try: persistent = false");
  schedule.persistent = false, schedule.grid_order = GridOrder::tiles_first;
  schedule.tile_order = TileOrder::counter;
  EXPECT_EQ(refused(program, schedule).words,
            "tile_order = counter without persistent = true\n"
            "  why: a block that computes one tile draws no other\n"
            "  try: tile_order = rounds");
  schedule = warpgroups(128, 64);
  schedule.persistent = true;
  AttentionSpec packed = head_dim(64);
  packed.layout = TensorLayout::thd;
  EXPECT_EQ(refused(attention_forward(packed), schedule, "sm_90a").words,
            "persistent = true with a ragged axis\n"
            "  why: a block places rows once\n"
            "  try: persistent = false");
  AttentionSpec checkered = head_dim(64);
  checkered.mask = chunked(40);
  EXPECT_EQ(refused(attention_forward(checkered), schedule, "sm_90a").words,
            "persistent = true for attention_forward\n"
            "  why: a block finds out once which tiles hold something visible\n"
            "  try: persistent = false");
}

TEST(Refusals, ChainsOfReductions) {
  Schedule schedule = tiles({{"rows", 64}, {"cols", 64}});
  schedule.reduction_chains = 3;
  EXPECT_EQ(refused(attention_forward(head_dim(64)), schedule).words,
            "reduction_chains = 3\n"
            "  why: a row's fragments are dealt out to 1, 2 or 4 chains\n"
            "  try: 1");
}

TEST(Refusals, ExponentialsOfEight) {
  Schedule schedule = tiles({{"rows", 64}, {"cols", 64}});
  schedule.polynomial_exponentials = 9;
  EXPECT_EQ(refused(attention_forward(head_dim(64)), schedule).words,
            "polynomial_exponentials = 9\n"
            "  why: it counts exponentials of every eight\n"
            "  try: 0 to 8");
}

TEST(Refusals, BlocksThatShareOutALoop) {
  Schedule schedule = warpgroups(64, 64);
  const Program program = attention_forward(head_dim(64));
  schedule.loop_blocks = 2;
  EXPECT_EQ(refused(program, schedule, "sm_90a").words, "nothing was refused");
  schedule.loop_blocks = 3;
  EXPECT_EQ(refused(program, schedule, "sm_90a").words,
            "loop_blocks = 3\n"
            "  why: a cluster has 2, 4 or 8 blocks that share out a loop\n"
            "  try: 1, 2, 4 or 8");
  schedule.loop_blocks = 2;
  schedule.persistent = true;
  EXPECT_EQ(refused(program, schedule, "sm_90a").words,
            "loop_blocks = 2 with persistent = true\n"
            "  why: blocks that share out a loop work on one tile of rows, and all are there at once\n"
            "  try: loop_blocks = 1");
  Schedule small = tiles({{"rows", 64}, {"cols", 64}});
  small.loop_blocks = 2;
  EXPECT_EQ(refused(program, small).words,
            "loop_blocks = 2 without copy = tma\n"
            "  why: blocks have clusters where there is a copy engine\n"
            "  try: loop_blocks = 1");
}

struct Carried {
  Tile largest, sum;
};

// What is carried has to mean the same, whichever maximum it was computed with.
TEST(Refusals, ALoopThatCannotBeSharedOut) {
  const auto words = [](const std::function<Carried(const Tile&, const Tile&, const Carried&, Axis)>& round) {
    ProgramBuilder b("carries");
    const Axis rows = b.parallel_tiles("rows", named("M")), cols = b.tiles("cols", named("N")), d = b.whole("d", 64);
    const Tensor q = b.input("q", DType::bf16, {named("M"), 64}), k = b.input("k", DType::bf16, {named("N"), 64});
    const Tensor y = b.output("y", DType::f32, {named("M")});
    const Tile query = load(q(rows, d));
    const Carried last = b.loop(cols, Carried{b.fill({rows}, -1e30), b.fill({rows}, 0).named("sum")}, [&](const Carried& s) {
      const Tile scores = dot(query, transpose(load(k(cols, d))));
      return round(scores, reduce_max(scores, cols), s, cols);
    });
    store(y(rows), last.sum);
    Schedule schedule = warpgroups(64, 64);
    schedule.loop_blocks = 2;
    return refused(b.finish(), schedule, "sm_90a").words;
  };
  const auto grown = [](const Carried& s, const Tile& largest) { return maximum(s.largest, largest); };
  EXPECT_EQ(words([&](const Tile& scores, const Tile& largest, const Carried& s, Axis cols) {
              const Tile now = grown(s, largest);
              return Carried{now, s.sum * exp(s.largest - now) + reduce_sum(exp(scores - now), cols)};
            }),
            "nothing was refused");
  const std::string refusal =
      "loop_blocks = 2 for carries\n"
      "  why: what its loop carries as sum is no maximum, no sum, and no sum scaled as a maximum grows\n"
      "  try: loop_blocks = 1";
  // What is added does not follow the maximum; or another power of it; or the factor is none.
  EXPECT_EQ(words([&](const Tile& scores, const Tile& largest, const Carried& s, Axis cols) {
              const Tile now = grown(s, largest);
              return Carried{now, s.sum * exp(s.largest - now) + reduce_sum(scores, cols)};
            }),
            refusal);
  EXPECT_EQ(words([&](const Tile& scores, const Tile& largest, const Carried& s, Axis cols) {
              const Tile now = grown(s, largest);
              return Carried{now, s.sum * exp((s.largest - now) * 2.f) + reduce_sum(exp(scores - now), cols)};
            }),
            refusal);
  EXPECT_EQ(words([&](const Tile& scores, const Tile& largest, const Carried& s, Axis cols) {
              return Carried{grown(s, largest), s.sum * 0.5f + reduce_sum(scores, cols)};
            }),
            refusal);
}

TEST(Refusals, TurnsOfOneWarpgroup) {
  Schedule schedule = warpgroups(64, 64);
  schedule.alternate = true;
  const Program program = attention_forward(head_dim(64));
  EXPECT_EQ(refused(program, schedule, "sm_90a").words,
            "alternate = true with one warpgroup\n"
            "  why: one warpgroup has nobody to take turns with\n"
            "  try: alternate = false");
  schedule = warpgroups(128, 64);
  schedule.alternate = true;
  EXPECT_EQ(refused(program, schedule, "sm_90a").words, "nothing was refused");
}

TEST(Refusals, SumsOverRowsThatNoLoopClears) {
  const Schedule schedule = warpgroups(64, 64);
  const Refusal outside = refusal<SpecError>([&] {
    ProgramBuilder b("refused");
    const Axis part = b.parallel("part", named("P")), k = b.whole("k", 64);
    const Axis rows = b.parallel_tiles("rows", named("R")), cols = b.parallel_tiles("cols", named("C"));
    const Tensor ends = b.input("ends", DType::i32, {named("P")});
    const Tensor x = b.input("x", DType::bf16, {named("R"), 64}), y = b.input("y", DType::bf16, {named("C"), 64});
    const Tensor o = b.output("o", DType::f32, {named("P"), named("R"), named("C")});
    b.place(cols, b.constant(0, DType::i32), load(ends(part)));
    const Tile keys = load(y(cols, k));
    const Tile products = dot(load(x(rows, k)), transpose(keys));
    const Tile sums = dot(cast(products, DType::bf16), keys);
    store(o(part, rows, cols), products * reduce_sum(sums, k));
    generate(b.finish(), schedule, find_target("sm_90a"));
  });
  EXPECT_TRUE(outside.own_line);
  EXPECT_EQ(outside.words,
            "a product that sums over the ragged axis cols outside a loop over it\n"
            "  why: copies of whole tiles bring rows beyond the axis, and loops alone clear them\n"
            "  try: loop over the axis, or copy = cp_async");
}

TEST(Refusals, Budgets) {
  const Program program = attention_forward(head_dim(64));
  Schedule schedule = tiles({{"rows", 64}, {"cols", 64}});
  schedule.register_limit = 256;
  EXPECT_EQ(refused(program, schedule).words,
            "register_limit = 256\n"
            "  why: a thread of sm_80 has 24 to 255\n"
            "  try: 255");
  schedule.register_limit = 255;
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
  schedule.shared_limit = 20000;
  EXPECT_EQ(refused(program, schedule, "sm_89").words,
            "attention_forward needs 163840 bytes of shared memory a block\n"
            "  why: the schedule's shared_limit is 20000\n"
            "  try: smaller tiles and fewer stages together");
  // What is named does fit.
  schedule.shared_limit = 0;
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
  EXPECT_EQ(
      rows.words,
      "a tile of 64 along rows\n"
      "  why: a warp's share of a product is a multiple of 16, so with warps_m = 8 the tile must "
      "be a multiple of 128\n"
      "  try: a tile of 128, or fewer warps");
  schedule.warps_m = 4;
  schedule.warps_n = 3;
  EXPECT_EQ(
      refused(program, schedule).words,
      "a tile of 64 along cols\n"
      "  why: a warp's share of a product is a multiple of 16, so with warps_n = 3 the tile must "
      "be a multiple of 48\n"
      "  try: a tile of 96, or fewer warps");
}

// Shares that lie in different warps meet through shared memory: nothing is refused.
TEST(Refusals, NoAxesThatWarpsCut) {
  Schedule schedule = tiles({{"rows", 64}, {"cols", 32}});
  schedule.warps_n = 2;
  schedule.warps_m = 2;
  EXPECT_EQ(refused(attention_forward(head_dim(64)), schedule).words, "nothing was refused");
  schedule.tiles["cols"] = 48;
  EXPECT_EQ(refused(attention_forward(head_dim(64)), schedule).words,
            "a tile of 48 along cols\n"
            "  why: a warp's share of a product is a multiple of 16, so with warps_n = 2 the tile must "
            "be a multiple of 32\n"
            "  try: a tile of 64, or fewer warps");
  schedule = tiles({{"rows", 64}, {"cols", 64}});
  EXPECT_EQ(refused(column_reductions(), schedule).words, "nothing was refused");
}

TEST(Refusals, EveryReasonOfASpec) {
  AttentionSpec spec = head_dim(100);
  spec.head_dim_v = 300;
  spec.dtype = DType::f32;
  spec.heads = 6;
  spec.kv_heads = 4;
  spec.q_len = 0;
  EXPECT_EQ(
      refusal<SpecError>([&] { attention_forward(spec); }).words,
      "an attention spec that contradicts itself\n"
      "  why: \n"
      "    head_dim = 100: must be a multiple of 8 from 8 to 256; pad the tensors to 104\n"
      "    head_dim_v = 300: must be at most 256; there is no schedule for larger ones\n"
      "    dtype = f32: tensor cores take f16 or bf16; cast the tensors\n"
      "    heads = 6 is not a multiple of kv_heads = 4: every key head serves the same number of "
      "query heads\n"
      "    q_len = 0: a compiled-in length is at least 1; leave it open for tensors that may be "
      "empty\n"
      "  try: change what each line names");
  spec = head_dim(64);
  spec.kv_heads = 4;
  EXPECT_EQ(check(spec), std::vector<std::string>{"kv_heads = 4 without heads: give both"});
  spec.heads = -1;
  EXPECT_EQ(check(spec),
            std::vector<std::string>{"heads = -1, kv_heads = 4: must not be negative"});
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

TEST(Refusals, OperandsOfProducts) {
  const Refusal right = impossible(
      [] {
        Pieces p;
        store(p.o(p.m, p.k), p.b.loop(p.n, p.b.fill({p.m, p.k}, 0), [&](const Tile& s) {
          const Tile doubled = cast(cast(load(p.bt(p.n, p.k)), DType::f32) * 2, DType::f16);
          const Tile probs = dot(load(p.a(p.m, p.k)), transpose(load(p.bt(p.n, p.k))));
          return s + dot(cast(probs, DType::f16), doubled);
        }));
        return p.b.finish();
      },
      fine);
  EXPECT_TRUE(right.own_line);
  EXPECT_EQ(right.words,
            "a product whose right operand is computed\n"
            "  why: the right operand of a product comes from a tensor through shared memory\n"
            "  try: store it first, or exchange the operands and transpose");

  const Refusal twice = impossible(
      [] {
        Pieces p;
        const Tensor copy = p.b.output("copy", DType::f16, {named("M"), named("N")});
        store(p.o(p.m, p.k), p.b.loop(p.n, p.b.fill({p.m, p.k}, 0), [&](const Tile& s) {
          const Tile keys = load(p.bt(p.n, p.k));
          const Tile probs = cast(dot(load(p.a(p.m, p.k)), transpose(keys)), DType::f16);
          store(copy(p.m, p.n), probs);
          return s + dot(probs, keys);
        }));
        return p.b.finish();
      },
      fine);
  EXPECT_TRUE(twice.own_line);
  EXPECT_EQ(twice.words,
            "a product whose left operand is also used otherwise\n"
            "  why: a computed 16-bit tile is kept in the order a product takes it\n"
            "  try: cast the f32 tile once for the product and once for the other use");
}

TEST(Refusals, TransposedRegisters) {
  const Refusal transposed = impossible(
      [] {
        ProgramBuilder b("refused");
        const Axis m = b.parallel_tiles("m", named("M")), k = b.whole("k", 32);
        const Tensor a = b.input("a", DType::f32, {named("M"), 32});
        const Tensor turned = b.output("turned", DType::f32, {32, named("M")});
        store(turned(k, m), transpose(load(a(m, k)) * 2));
        return b.finish();
      },
      tiles({{"m", 64}}));
  EXPECT_TRUE(transposed.own_line);
  EXPECT_EQ(transposed.words,
            "a transpose of a tile that lives in registers\n"
            "  why: only the operand of a product can be read either way round\n"
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
            "  why: tiles are copied rounds ahead, when that position is not known yet\n"
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

TEST(Refusals, WhatTheCopyEngineAndWarpgroupsCannotRead) {
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

TEST(Refusals, WarpgroupsWithNothingToMultiply) {
  Schedule schedule = tiles({{"rows", 64}, {"cols", 32}});
  schedule.instruction = Instruction::wgmma;
  schedule.copy = CopyInstruction::tma;
  EXPECT_EQ(refused(row_softmax(), schedule, "sm_90a").words,
            "copy = tma for row_softmax\n"
            "  why: it has no product whose operands the copy engine could bring\n"
            "  try: instruction = mma_m16n8k16 and copy = cp_async");
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
            "  why: it is done inside one warp, and other operations cut the vector between warps\n"
            "  try: warps_m = 1 and warps_n = 1");
}

TEST(Refusals, SharedMemoryThatNoBlockHas) {
  Schedule schedule = tiles({{"rows", 64}, {"cols", 64}});
  schedule.shared_limit = 200000;
  EXPECT_EQ(refused(attention_forward(head_dim(64)), schedule, "sm_89").words,
            "shared_limit = 200000\n"
            "  why: a block of sm_89 has up to 101376 bytes of shared memory\n"
            "  try: 0, which is all of it");
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
