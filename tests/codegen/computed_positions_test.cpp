// Programs whose blocks lie where numbers say: through tables, in segments, and in tiles of several boxes. Lowered,
// emulated and held against the reference.
#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "codegen/explain.h"
#include "codegen/generate.h"
#include "tests/codegen/support/programs.h"
#include "tests/codegen/support/run_programs.h"
#include "tests/support/kernel_run.h"

namespace flashcore {
namespace {

TEST(ComputedPositions, Integers) {
  expect_right(integers(), schedule_of({{"rows", 16}}, 2),
               {{.extents = {{"N", 37}}, .scalars = {2}, .spread = {{"x", 100}}}});
}

TEST(ComputedPositions, GatherThroughATable) {
  expect_right(gather(), schedule_of({{"rows", 16}}, 1),
               {{.extents = {{"B", 3}, {"P", 5}, {"N", 20}}, .spread = {{"table", 5}}}});
}

TEST(ComputedPositions, BlocksOfARowLeaveBehindTheEndOfTheirSegment) {
  const KernelSource source = generate(rows_of_groups(), schedule_of({}, 1), find_target("sm_80"));
  std::vector<std::vector<double>> lists{{0, 3, 3, 11}, {0, 0, 0, 0}, {0, 1, 1, 14}};
  // So many that a warp looks at a part of them after the other.
  for (const int groups : {31, 32, 40, 1023, 1024, 1100})
    for (std::vector<double>& starts = lists.emplace_back(); std::ssize(starts) <= groups;)
      starts.push_back(14 * std::ssize(starts) / groups);
  for (const std::vector<double>& starts : lists) {
    const std::int64_t groups = std::ssize(starts) - 1;
    KernelRun run(rows_of_groups(),
                  {.extents = {{"R", 14}, {"G", groups}}, .values = {{"starts", starts}}});
    const EmulationReport report = run.emulate(source);
    EXPECT_EQ(run.compare(), "");
    EXPECT_EQ(report.outputs[0].unwritten, (14 - starts.back()) * 32);
  }
}

TEST(ComputedPositions, RowsOverTwoDimensionsAndColumnsThroughPages) {
  for (const auto& [page_size, dim] : {std::pair{1, 16}, {4, 64}, {16, 96}, {32, 128}})
    for (const int stages : {1, 3})
      for (const auto& [warps_m, warps_n] : {std::pair{1, 1}, {2, 1}, {1, 2}})
        for (const CopyInstruction copy : {CopyInstruction::cp_async, CopyInstruction::vector}) {
          Schedule schedule = schedule_of({{"rows", 16 * warps_m}, {"cols", 32}}, warps_m, warps_n);
          schedule.stages = stages;
          schedule.copy = copy;
          // A page beyond the last is one of zeros.
          expect_right(
              paged_products(page_size, dim), schedule,
              {{.extents = {{"B", 2}, {"M", 7}, {"P", 6}, {"N", 100 / page_size + 1}},
                .spread = {{"pages", 8}}},
               {.extents = {{"B", 1}, {"M", 1}, {"P", 1}, {"N", 1}}, .spread = {{"pages", 1}}},
               {.extents = {{"B", 1}, {"M", 5}, {"P", 3}, {"N", 0}}}});
        }
}

Schedule by_copy_engine(int cols) {
  Schedule schedule = schedule_of({{"rows", 64}, {"cols", cols}}, 4);
  schedule.instruction = Instruction::wgmma;
  schedule.copy = CopyInstruction::tma;
  return schedule;
}

// A tile is one box of a page, or several: of a page each, or of a part that pages and tiles share.
TEST(ComputedPositions, PagesOfMultiplesOfEightKeysComeByTheCopyEngine) {
  struct Case {
    int page_size, cols, dim;
  };
  for (const auto& [page_size, cols, dim] : {Case{32, 32, 64},
                                             {96, 32, 128},
                                             {8, 32, 128},
                                             {16, 32, 64},
                                             {16, 64, 96},
                                             {8, 64, 64},
                                             {48, 32, 40},
                                             {40, 64, 64}})
    for (const int producer_warps : {2, 1, 0})
      for (const bool persistent : {false, true}) {
        if (persistent && !producer_warps) continue;
        SCOPED_TRACE(fmt::format("pages of {}, tiles of {}", page_size, cols));
        Schedule schedule = by_copy_engine(cols);
        schedule.producer = producer_warps > 0;
        schedule.producer_warps = std::max(1, producer_warps);
        schedule.persistent = persistent;
        const int pages = 150 / page_size + 2;
        // A page beyond the last is one of zeros.
        expect_right(
            paged_products(page_size, dim, true), schedule,
            {{.extents = {{"B", 2}, {"M", 50}, {"P", 6}, {"N", pages}}, .spread = {{"pages", 8}}},
             {.extents = {{"B", 1}, {"M", 1}, {"P", 1}, {"N", 1}}, .spread = {{"pages", 1}}},
             {.extents = {{"B", 1}, {"M", 5}, {"P", 3}, {"N", 0}}}});
      }
}

// Eight heads of a query row follow each other in the tensor, and the next row's are a box behind them.
TEST(ComputedPositions, RowsOverTwoDimensionsComeInBoxesOfOne) {
  for (const int heads : {8, 16})
    for (const bool producer : {true, false}) {
      SCOPED_TRACE(fmt::format("{} heads", heads));
      Schedule schedule = by_copy_engine(32);
      schedule.producer = producer;
      const Program program = paged_products(16, 64, false, heads);
      expect_right(
          program, schedule,
          {{.extents = {{"B", 2}, {"M", 11}, {"P", 6}, {"N", 5}}, .spread = {{"pages", 8}}},
           {.extents = {{"B", 1}, {"M", 1}, {"P", 1}, {"N", 1}}}});
    }
}

/// s[i] = the sum over j of the products of q[i, :] and k[which[j / 16], j, :].
Program of_chosen_keys() {
  ProgramBuilder b("of_chosen_keys");
  const Extent row_count("M"), key_count("N"), sets("P"), groups("G");
  const Axis rows = b.parallel_tiles("rows", row_count), cols = b.tiles("cols", key_count),
             d = b.whole("d", 64);
  const Tensor q = b.input("q", DType::bf16, {row_count, 64});
  const Tensor k = b.input("k", DType::bf16, {sets, key_count, 64});
  const Tensor which = b.gathered_input("which", DType::i32, {groups});
  const Tensor s = b.output("s", DType::f32, {row_count});
  const Tile left = load(q(rows, d));
  const Tile sum = b.loop(cols, b.fill({rows}, 0), [&](const Tile& so_far) {
    const Tile set = gather(which, {index(cols) / 16});
    return so_far + reduce_sum(dot(left, transpose(load(k(set, cols, d)))), cols);
  });
  store(s(rows), sum);
  return b.finish();
}

// The rows of all boxes are those of the tile, and only the place in another dimension is looked up.
TEST(ComputedPositions, BoxesMayFollowEachOtherInTheirRows) {
  for (const bool producer : {true, false}) {
    Schedule schedule = by_copy_engine(64);
    schedule.producer = producer;
    expect_right(
        of_chosen_keys(), schedule,
        {{.extents = {{"M", 70}, {"N", 150}, {"P", 4}, {"G", 10}}, .spread = {{"which", 6}}},
         {.extents = {{"M", 1}, {"N", 8}, {"P", 1}, {"G", 1}}}});
  }
}

TEST(ComputedPositions, RowsThatLieInNoBoxAreRefused) {
  const auto refusal = [](int page_size, bool left_in_registers) -> std::string {
    try {
      (void)generate(paged_products(page_size, 64, left_in_registers), by_copy_engine(32),
                     find_target("sm_90a"));
    } catch (const ScheduleError& error) {
      return error.what();
    }
    return "none";
  };
  for (const int page_size : {8, 16, 24, 48, 64}) EXPECT_EQ(refusal(page_size, true), "none");
  for (const int page_size : {1, 4, 12, 20})
    EXPECT_EQ(refusal(page_size, true),
              "copy tma of k at computed positions\n"
              "  why: in dimension 0 of k, 8 rows of a tile along cols are not known to have one "
              "position, "
              "or positions that follow each other\n"
              "  try: positions along cols that are divided by a multiple of 8, as in pages of 16 "
              "rows, or "
              "instruction = mma_m16n8k16 and copy = cp_async, which copies row by row");
  EXPECT_NE(refusal(64, false).find("copy tma of q at computed positions"), std::string::npos);
}

/// s[i] = the sum over j of the products of q[i, :] and k[j, shift : shift + 64].
Program of_shifted_columns(int shift) {
  ProgramBuilder b("of_shifted_columns");
  const Extent row_count("M"), key_count("N");
  const Axis rows = b.parallel_tiles("rows", row_count), cols = b.tiles("cols", key_count),
             d = b.whole("d", 64);
  const Tensor q = b.input("q", DType::bf16, {row_count, 64});
  const Tensor k = b.input("k", DType::bf16, {key_count, 96});
  const Tensor s = b.output("s", DType::f32, {row_count});
  const Tile left = load(q(rows, d));
  const Tile sum = b.loop(cols, b.fill({rows}, 0), [&](const Tile& so_far) {
    return so_far + reduce_sum(dot(left, transpose(load(k(cols, index(d) + shift)))), cols);
  });
  store(s(rows), sum);
  return b.finish();
}

// Elsewhere a copy by the copy engine is an illegal instruction.
TEST(ComputedPositions, RowsOfABoxBeginAtMultiplesOf16Bytes) {
  Schedule schedule = schedule_of({{"rows", 64}, {"cols", 32}}, 4);
  schedule.instruction = Instruction::wgmma;
  schedule.copy = CopyInstruction::tma;
  expect_right(of_shifted_columns(8), schedule, {{.extents = {{"M", 70}, {"N", 50}}}});
  try {
    (void)generate(of_shifted_columns(5), schedule, find_target("sm_90a"));
    FAIL() << "no refusal";
  } catch (const ScheduleError& error) {
    EXPECT_NE(
        std::string(error.what())
            .find("  why: the positions along d of a row of k begin at no known multiple of 8 "
                  "elements, 16 bytes, as boxes of the copy engine do\n"),
        std::string::npos)
        << error.what();
  }
}

TEST(ComputedPositions, ColumnsUpToAQuotientAreTheTilesOfALoop) {
  const std::string text = explain(
      paged_products(4, 64), schedule_of({{"rows", 16}, {"cols", 32}}, 1), find_target("sm_80"));
  EXPECT_NE(text.find("bounded: cols <= (rows // 3)"), std::string::npos) << text;
}

}  // namespace
}  // namespace flashcore
