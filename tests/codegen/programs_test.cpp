// The language beyond attention, lowered, emulated and held against the reference: under several
// warp grids, depths and lengths each.
#include "tests/codegen/support/programs.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "codegen/generate.h"
#include "tests/codegen/support/run_programs.h"
#include "tests/support/kernel_run.h"

namespace flashcore {
namespace {

TEST(Programs, Elementwise) {
  for (const int columns : {8, 40, 64, 128})
    for (const bool staged : {true, false}) {
      Schedule schedule = schedule_of({{"rows", 32}}, 2);
      schedule.staged_stores = staged;
      expect_right(
          elementwise(columns), schedule,
          {{.extents = {{"N", 70}}, .scalars = {0.5}}, {.extents = {{"N", 1}}, .scalars = {-3.}}});
    }
}

TEST(Programs, SumsToAScalar) {
  for (const int warps : {1, 4})
    expect_right(totals(), schedule_of({}, warps), {{.extents = {{"H", 5}}}});
}

// A loop that nobody reads, with a reduction over warps of its own, goes with all that is in it.
TEST(Programs, ALoopWithoutReadersGoes) {
  const Program program = Program::parse(R"(program unread
axis rows: parallel_tiles M
axis cols: tiles N
input x: f32 [M, N]
output y: f32 [M]
{
  %none = constant 0 : f32[rows]
  %unread = loop cols {
    tile %tile : i32
    carry %sum = %none : f32[rows]
    %x = load x[rows, cols] : f32[rows, cols]
    %own = reduce_sum %x along cols : f32[rows]
    %next = add %sum, %own : f32[rows]
    yield %next
  }
  %read = loop cols {
    tile %tile_1 : i32
    carry %most = %none : f32[rows]
    %x_1 = load x[rows, cols] : f32[rows, cols]
    %own_1 = reduce_max %x_1 along cols : f32[rows]
    %next_1 = max %most, %own_1 : f32[rows]
    yield %next_1
  }
  store y[rows], %read
}
)");
  expect_right(program, schedule_of({{"rows", 16}, {"cols", 64}}, 1, 4),
               {{.extents = {{"M", 40}, {"N", 130}}}});
}

TEST(Programs, MatrixProductOnWarpGrids) {
  for (const auto& [warps_m, warps_n] : {std::pair{1, 1}, {4, 1}, {2, 2}, {1, 4}})
    for (const int stages : {1, 2, 3})
      for (const DType output : {DType::f32, DType::f16}) {
        Schedule schedule = schedule_of({{"m", 64}, {"n", 64}, {"k", 32}}, warps_m, warps_n);
        schedule.stages = stages;
        expect_right(matrix_product(DType::f16, output), schedule,
                     {{.extents = {{"M", 70}, {"N", 80}, {"K", 72}}},
                      {.extents = {{"M", 64}, {"N", 128}, {"K", 32}}},
                      {.extents = {{"M", 3}, {"N", 8}, {"K", 0}}}});
      }
}

TEST(Programs, TransposedProduct) {
  for (const auto& [warps_m, warps_n] : {std::pair{1, 1}, {1, 2}, {2, 2}, {4, 1}})
    expect_right(transposed_product(),
                 schedule_of({{"m", 64}, {"n", 32}, {"k", 32}}, warps_m, warps_n),
                 {{.extents = {{"M", 40}, {"N", 72}, {"K", 50}}}});
}

// Whichever way round the operands lie in shared memory, and with panels of every width.
TEST(Programs, ProductsOfWarpgroups) {
  struct Shape {
    int warps, n, k;
  };
  for (const auto& [warps, n, k] :
       {Shape{4, 32, 16}, {8, 80, 48}, {4, 128, 64}, {8, 64, 80}, {4, 80, 128}}) {
    Schedule schedule = warpgroups({{"m", 16 * warps}, {"n", n}, {"k", k}}, warps);
    schedule.persistent = k == 48;
    const std::vector<RunInputs> launches{{.extents = {{"M", 136}, {"N", 88}, {"K", 136}}},
                                          {.extents = {{"M", 8}, {"N", 8}, {"K", 0}}}};
    expect_right(matrix_product(DType::bf16, DType::bf16), schedule, launches);
    expect_right(transposed_product(), schedule, launches);
    expect_right(transposed_product(/*turned=*/true), schedule, launches);
  }
}

// Rows between groups hold NaN: those of both operands are cleared.
TEST(Programs, ProductsOverGroupsOfRows) {
  constexpr std::size_t rows = 100, columns = 72;
  RunInputs in{.extents = {{"G", 3}, {"M", columns}, {"N", columns}, {"K", rows}}};
  in.values["begins"] = {0, 40, 60};
  in.values["ends"] = {33, 50, 100};
  for (const char* tensor : {"a", "b"}) {
    std::vector<double>& values = in.values[tensor];
    for (std::size_t i = 0; i < rows * columns; ++i) {
      const std::size_t row = i / columns;
      const bool in_group = row < 33 || (row >= 40 && row < 50) || row >= 60;
      values.push_back(in_group ? static_cast<double>(i * 7 % 11) / 8 - 0.6 : std::nan(""));
    }
  }
  expect_right(grouped_product(), schedule_of({{"m", 64}, {"n", 32}, {"k", 32}}, 4), {in});
  expect_right(grouped_product(), warpgroups({{"m", 64}, {"n", 32}, {"k", 32}}, 4), {in});
  expect_right(grouped_product(), warpgroups({{"m", 128}, {"n", 80}, {"k", 48}}, 8), {in});
}

// A right operand that is computed goes through shared memory, which all warps write and read.
TEST(Programs, ProductsWithAComputedRightOperand) {
  const std::vector<RunInputs> launches{{.extents = {{"M", 72}, {"N", 104}}},
                                        {.extents = {{"M", 5}, {"N", 8}}},
                                        {.extents = {{"M", 64}, {"N", 0}}}};
  for (const bool transposed : {false, true}) {
    for (const auto& [warps_m, warps_n] : {std::pair{1, 1}, {2, 1}, {4, 1}, {2, 2}}) {
      Schedule schedule = schedule_of({{"m", 64}, {"n", 64}}, warps_m, warps_n);
      for (const int stages : {1, 2, 3}) {
        schedule.stages = stages;
        expect_right(chained_product(transposed), schedule, launches);
      }
    }
    Schedule blocks = schedule_of({{"m", 32}, {"n", 32}}, 2);
    blocks.instruction = Instruction::wmma;
    blocks.softmax = Softmax::shared;
    expect_right(chained_product(transposed), blocks, launches);
  }
}

// A chunk's queries and keys are one tile under two names; the state comes from chunk to chunk.
TEST(Programs, ChunksOfLinearAttention) {
  const std::vector<RunInputs> launches{{.extents = {{"H", 2}, {"L", 100}}},
                                        {.extents = {{"H", 1}, {"L", 1}}},
                                        {.extents = {{"H", 1}, {"L", 128}}},
                                        {.extents = {{"H", 2}, {"L", 0}}}};
  for (const int warps : {1, 2, 4})
    for (const int stages : {1, 2, 3}) {
      Schedule schedule = schedule_of({{"t", 64}, {"dv", 32}}, warps);
      schedule.stages = stages;
      expect_right(linear_attention(), schedule, launches);
    }
  expect_right(linear_attention(48, 40), schedule_of({{"t", 48}, {"dv", 16}}, 1), launches);
  // Both names are of the part of the positions that a block covers.
  expect_right(linear_attention(64, 32, 40, 3), schedule_of({{"t", 32}, {"dv", 32}}, 2),
               {{.extents = {{"H", 2}, {"L", 100}}}, {.extents = {{"H", 1}, {"L", 30}}}});
  Schedule blocks = schedule_of({{"t", 32}, {"dv", 32}}, 2);
  blocks.instruction = Instruction::wmma;
  blocks.softmax = Softmax::shared;
  blocks.copy = CopyInstruction::vector;
  expect_right(linear_attention(), blocks, launches);
}

TEST(Programs, RowSoftmaxOfTwoLoops) {
  for (const int warps : {1, 4})
    expect_right(row_softmax(), schedule_of({{"rows", 32}, {"cols", 64}}, warps),
                 {{.extents = {{"M", 33}, {"N", 100}}}, {.extents = {{"M", 5}, {"N", 64}}}});
}

TEST(Programs, LayerNorm) {
  for (const int warps : {1, 3})
    expect_right(layer_norm(), schedule_of({{"rows", 48}}, warps), {{.extents = {{"N", 50}}}});
}

TEST(Programs, CarriedValuesMayChangePlaces) {
  for (const bool descending : {true, false}) {
    Schedule schedule = schedule_of({{"rows", 32}, {"cols", 32}}, 1);
    schedule.descending = descending;
    // One tile and its tail; with more, the order of the tiles would be part of the result.
    expect_right(exchanging(), schedule, {{.extents = {{"M", 40}, {"N", 20}}}});
  }
}

TEST(Programs, ChainedProducts) {
  for (const int stages : {1, 2, 4})
    for (const bool keep : {false, true}) {
      Schedule schedule = schedule_of({{"m", 32}, {"n", 32}}, 2);
      schedule.stages = stages;
      schedule.keep_operands = keep;
      expect_right(chained_products(), schedule,
                   {{.extents = {{"M", 50}, {"N", 77}}}, {.extents = {{"M", 32}, {"N", 0}}}});
    }
}

// One that a loop does not change, one that something else reads too, one read the other way round.
TEST(Programs, ProductsWithComputedLeftOperands) {
  const std::vector<RunInputs> launches{{.extents = {{"B", 2}, {"N", 77}}},
                                        {.extents = {{"B", 1}, {"N", 1}}}};
  for (const auto& [warps_m, warps_n] : {std::pair{1, 1}, {2, 1}, {2, 2}, {1, 3}})
    for (const ProductSplit split : {ProductSplit::terms, ProductSplit::columns})
      for (const bool keep : {false, true}) {
        Schedule schedule = schedule_of({{"n", 16 * warps_m * warps_n}}, warps_m, warps_n);
        schedule.product_split = split;
        schedule.keep_operands = keep;
        expect_right(computed_left_operands(), schedule, launches);
      }
}

// With two warps along the inner axis each holds a partial of the second product.
TEST(Programs, ProductsOverSeveralWarpsAndInSharedMemory) {
  for (const Softmax softmax : {Softmax::registers, Softmax::shared})
    for (const Instruction instruction : {Instruction::mma_m16n8k16, Instruction::wmma}) {
      if (softmax == Softmax::registers && instruction == Instruction::wmma) continue;
      for (const CopyInstruction copy : {CopyInstruction::cp_async, CopyInstruction::vector}) {
        Schedule schedule = schedule_of({{"m", 32}, {"n", 32}}, 2, 2);
        schedule.softmax = softmax;
        schedule.instruction = instruction;
        schedule.copy = copy;
        expect_right(chained_products(), schedule,
                     {{.extents = {{"M", 50}, {"N", 77}}}, {.extents = {{"M", 32}, {"N", 0}}}});
        schedule.tiles = {{"m", 64}, {"n", 64}, {"k", 32}};
        expect_right(matrix_product(DType::f16, DType::f16), schedule,
                     {{.extents = {{"M", 70}, {"N", 80}, {"K", 72}}}});
      }
    }
}

TEST(Programs, TwoPasses) {
  for (const int stages : {1, 2, 3})
    for (const bool keep : {false, true}) {
      Schedule schedule = schedule_of({{"rows", 32}, {"cols", 32}}, 2);
      schedule.stages = stages;
      schedule.keep_operands = keep;
      expect_right(two_passes(), schedule,
                   {{.extents = {{"M", 50}, {"N", 77}}}, {.extents = {{"M", 32}, {"N", 0}}}});
    }
}

TEST(Programs, ATileForAProductAndForItself) {
  for (const int stages : {1, 2}) {
    Schedule schedule = schedule_of({{"rows", 32}, {"cols", 32}}, 2);
    schedule.stages = stages;
    expect_right(mixed_use(), schedule, {{.extents = {{"M", 50}, {"N", 80}}}});
  }
}

TEST(Programs, PartsInAnyOrder) {
  for (const bool descending : {false, true})
    for (const int stages : {1, 3}) {
      Schedule schedule = schedule_of({{"rows", 32}, {"cols", 32}}, 2);
      schedule.descending = descending;
      schedule.stages = stages;
      expect_right(deviations(), schedule,
                   {{.extents = {{"M", 50}, {"N", 77}}}, {.extents = {{"M", 3}, {"N", 1}}}});
    }
}

TEST(Programs, SumsOfConstantsWhereNoMaskIsLeft) {
  Schedule schedule = schedule_of({{"rows", 32}, {"cols", 32}}, 2);
  schedule.peel_masks = true;
  expect_right(deviations(), schedule, {{.extents = {{"M", 50}, {"N", 77}}}});
}

// A schedule that runs loops from the last tile to the first does so where the program lets it.
TEST(Programs, OrderIsKeptUnlessTheProgramGivesItFree) {
  constexpr int columns = 77, tile = 32;
  const auto expect_segment = [&](LoopOrder order, bool descending, int begin, int end) {
    Schedule schedule = schedule_of({{"rows", 16}, {"cols", tile}}, 1);
    schedule.descending = descending;
    const Program program = last_segment(order);
    KernelRun run(program, {.extents = {{"M", 2}, {"N", columns}}});
    run.emulate(generate(program, schedule, find_target("sm_80")));
    const std::vector<double> x = run.values(0), y = run.values(1);
    for (std::ptrdiff_t row = 0; row < 2; ++row) {
      const auto first = x.begin() + row * columns;
      EXPECT_EQ(y[row], *std::max_element(first + begin, first + end));
    }
  };
  expect_segment(LoopOrder::sequential, true, 64, columns);
  expect_segment(LoopOrder::sequential, false, 64, columns);
  expect_segment(LoopOrder::unordered, true, 0, tile);
  expect_segment(LoopOrder::unordered, false, 64, columns);
}

TEST(Programs, ColumnReductions) {
  expect_right(column_reductions(), schedule_of({{"rows", 32}, {"cols", 32}}, 1),
               {{.extents = {{"M", 70}, {"N", 40}}}});
  // Four warps have the rows of a tile, and their partials are combined in shared memory.
  expect_right(column_reductions(), schedule_of({{"rows", 64}, {"cols", 32}}, 4),
               {{.extents = {{"M", 70}, {"N", 40}}}});
}

}  // namespace
}  // namespace flashcore
