// Blocks that add in order along ragged axes: those of packed sequences, of which each has an order
// of its own.
#include <numeric>
#include <regex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codegen/generate.h"
#include "dsl/flashcore.h"
#include "runtime/emulator/emulated_module.h"
#include "runtime/reference/evaluate_module.h"

namespace flashcore {
namespace {

/// sums[j] += x[i, j] for the rows i and the columns j of every sequence; below the diagonal, the
/// columns that a block visits depend on its rows.
Module sums_of_sequences(bool below_diagonal, bool longest) {
  ProgramBuilder b("add_rows");
  const Extent B("B"), R("R"), N("N");
  const Axis sequence = b.parallel("sequence", B), rows = b.parallel_tiles("rows", R),
             cols = b.tiles("cols", N);
  const Tensor row_starts = b.input("row_starts", DType::i32, {B + 1}),
               col_starts = b.input("col_starts", DType::i32, {B + 1}),
               x = b.input("x", DType::f32, {R, N});
  const Tensor sums = b.output("sums", DType::f32, {N}),
               turns = b.output("turns", DType::i32, {B, R});
  const Tile at = index(sequence);
  if (longest)
    b.segment(rows, load(row_starts(at)), load(row_starts(at + 1)), b.scalar("most", DType::i32));
  else
    b.segment(rows, load(row_starts(at)), load(row_starts(at + 1)));
  b.segment(cols, load(col_starts(at)), load(col_starts(at + 1)));
  b.loop(cols, [&] {
    Tile values = load(x(rows, cols));
    if (below_diagonal) values = where(index(rows) >= index(cols), values, 0.F);
    accumulate(sums(cols), reduce_sum(values, rows), turns);
  });
  ModuleBuilder m("sums_of_sequences");
  m.kernel(b.finish());
  return m.finish();
}

EmulatedModule emulated(const Module& module, const char* target, bool last_tiles_first,
                        const std::string& without = {}) {
  const Schedule schedule{
      .tiles = {{"rows", 16}, {"cols", 32}}, .warps_m = 2, .last_tiles_first = last_tiles_first};
  KernelSource source = generate(module.kernels()[0], schedule, find_target(target));
  if (!without.empty()) {
    const std::string body = std::regex_replace(source.body, std::regex(without), "");
    EXPECT_NE(body, source.body) << source.body;
    source.body = body;
  }
  const std::shared_ptr<const KernelSource> sources[] = {
      std::make_shared<const KernelSource>(std::move(source))};
  return EmulatedModule::build(module, sources);
}

/// Sequences of many tiles, of one, of no rows, of no columns.
struct Arrays {
  std::vector<std::int32_t> row_starts{0, 70, 70, 75, 110, 300}, col_starts{0, 40, 90, 91, 91, 300};
  std::vector<float> x = std::vector<float>(300 * 300), sums = std::vector<float>(300, 0.5F);
  std::vector<std::int32_t> turns = std::vector<std::int32_t>(5 * 300);
  std::vector<TensorView> views;

  Arrays() {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = 1.F / static_cast<float>(1 + i % 997);
    views = {TensorView::dense(row_starts.data(), DType::i32, {6}, cpu_device),
             TensorView::dense(col_starts.data(), DType::i32, {6}, cpu_device),
             TensorView::dense(x.data(), DType::f32, {300, 300}, cpu_device),
             TensorView::dense(sums.data(), DType::f32, {300}, cpu_device),
             TensorView::dense(turns.data(), DType::i32, {5, 300}, cpu_device)};
  }
};

TEST(RaggedAccumulation, AddsInOrderWithinEachSequence) {
  for (const char* target : {"sm_80", "sm_90a"})
    for (const bool below_diagonal : {false, true})
      for (const bool longest : {false, true})
        for (const bool last_tiles_first : {false, true}) {
          const Module module = sums_of_sequences(below_diagonal, longest);
          const EmulatedModule kernels = emulated(module, target, last_tiles_first);
          const std::vector<ScalarValue> scalars(longest ? 1 : 0, ScalarValue(190));
          std::vector<float> first;
          for (int run = 0; run < 3; ++run) {
            Arrays arrays;
            const std::vector<ReferenceOutput> expected =
                evaluate(module, arrays.views, scalars, emulated_multiprocessors);
            (void)kernels.run(arrays.views, scalars);
            for (std::size_t i = 0; i < arrays.sums.size(); ++i)
              EXPECT_NEAR(arrays.sums[i], expected[0].values[i], 1e-5) << target << " column " << i;
            if (run == 0) first = arrays.sums;
            EXPECT_EQ(arrays.sums, first) << "the same bits in every run";
          }
        }
}

TEST(RaggedAccumulation, NobodyWaitsForBlocksThatAreNotLaunched) {
  // Of the last sequence's 190 rows, 48 have blocks: the last of these begins.
  const Module module = sums_of_sequences(false, true);
  const std::vector<ScalarValue> scalars{ScalarValue(48)};
  for (const bool last_tiles_first : {false, true}) {
    Arrays arrays;
    (void)emulated(module, "sm_90a", last_tiles_first).run(arrays.views, scalars);
    float sum = 0.5F;
    for (std::size_t row = 110; row < 110 + 48; ++row) sum += arrays.x[row * 300 + 299];
    EXPECT_NEAR(arrays.sums[299], sum, 1e-5);
  }
}

TEST(RaggedAccumulation, NobodyAddsOutOfTurn) {
  const EmulatedModule kernels =
      emulated(sums_of_sequences(false, false), "sm_90a", true, R"(if \(.*fc::wait_turn\(.*\);)");
  Arrays arrays;
  try {
    (void)kernels.run(arrays.views, {});
    FAIL() << "nothing is said";
  } catch (const EmulatorError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("addition out of turn"));
  }
}

TEST(RaggedAccumulation, SequencesThatOverlapHaveNoOrder) {
  const EmulatedModule kernels = emulated(sums_of_sequences(false, false), "sm_90a", false);
  Arrays arrays;
  arrays.col_starts = {0, 40, 20, 91, 91, 300};  // the third begins within the first
  try {
    (void)kernels.run(arrays.views, {});
    FAIL() << "nothing is said";
  } catch (const EmulatorError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("addition out of turn"));
  }
}

}  // namespace
}  // namespace flashcore
