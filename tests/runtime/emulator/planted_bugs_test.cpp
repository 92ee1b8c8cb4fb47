// Every kind of mistake is found, by its kind and at its line.
#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "tests/runtime/emulator/support/kernels.h"

namespace flashcore::testing {
namespace {

/// Runs the product of [96, 64] and [64, 64]: tails in the rows, two steps.
class ProductRun {
 public:
  std::vector<float> c = std::vector<float>(m * n);

  EmulationReport operator()(const KernelSource& source, int row_padding = 0) {
    const std::int64_t row = k + row_padding;
    std::vector<std::uint16_t> a_bits = halves(random_values(std::size_t(m) * row, 1)),
                               b_bits = halves(random_values(std::size_t(n) * row, 2));
    const std::vector<TensorView> tensors = {view_of(a_bits.data(), DType::f16, {m, k}, {row, 1}),
                                             view_of(b_bits.data(), DType::f16, {n, k}, {row, 1}),
                                             view_of(c.data(), DType::f32, {m, n}, {n, 1})};
    const auto parameters = Parameters()
                                .add(a_bits.data())
                                .add(b_bits.data())
                                .add(c.data())
                                .add(row)
                                .add(row)
                                .add(std::int64_t{n})
                                .add(m)
                                .add(n)
                                .add(k)
                                .bytes();
    return EmulatedKernel::build(source).run(parameters, 2, tensors);
  }

 private:
  static constexpr int m = 96, n = 64, k = 64;
};

struct PlantedBug {
  const char* name;
  const char* from;
  const char* to;
  FaultKind kind;
  const char* line;  ///< text of the line that the error names, in the body with the bug
};

void PrintTo(const PlantedBug& bug, std::ostream* out) { *out << bug.name; }

class MatrixProductBug : public ::testing::TestWithParam<PlantedBug> {};

TEST_P(MatrixProductBug, IsNamedByKindAndLine) {
  const PlantedBug& bug = GetParam();
  const KernelSource source = with(matrix_product(), bug.from, bug.to);
  const EmulatorError error = failure_of([&] { ProductRun()(source); });
  EXPECT_EQ(name_of(error.kind()), name_of(bug.kind)) << error.what();
  EXPECT_EQ(error.line(), line_of(source, bug.line)) << error.what();
  EXPECT_EQ(error.complaint().where.file, "matrix_product.cu");
}

INSTANTIATE_TEST_SUITE_P(
    All, MatrixProductBug,
    ::testing::Values(
        PlantedBug{"wait_removed", "fc::wait_copies<1>();", "", FaultKind::in_flight,
                   "fc::load_matrices(a,"},
        PlantedBug{"wait_for_too_few", "fc::wait_copies<1>();", "fc::wait_copies<2>();",
                   FaultKind::in_flight, "fc::load_matrices(a,"},
        PlantedBug{"commit_removed", "fc::commit_copies();", "", FaultKind::in_flight,
                   "fc::load_matrices(a,"},
        PlantedBug{"barrier_after_the_wait_removed", "fc::barrier();  // landed", "",
                   FaultKind::race, "fc::load_matrices(a,"},
        PlantedBug{"wait_behind_the_barrier",
                   "fc::wait_copies<1>();\n    fc::barrier();  // landed",
                   "fc::barrier();\n    fc::wait_copies<1>();", FaultKind::in_flight,
                   "fc::load_matrices(a,"},
        PlantedBug{"one_stage", "(step + 1) % 2 * 8192", "0", FaultKind::in_flight,
                   "fc::copy_async(next + offset"},
        PlantedBug{"copy_never_issued", "if (step + 1 < steps) {",
                   "if (step + 1 < steps && step >= 0) {", FaultKind::uninitialized,
                   "fc::load_matrices(a,"},
        PlantedBug{"base_forgotten", "next = shared +", "next =", FaultKind::out_of_bounds,
                   "fc::copy_async(next + offset"},
        PlantedBug{"row_past_the_end", "m_begin + row < p.M && k < p.K ? 16", "k < p.K ? 16",
                   FaultKind::out_of_bounds, "fc::copy_async(next + offset"},
        PlantedBug{"too_many_valid_bytes", "k < p.K ? 16 : 0;\n        const int b",
                   "k < p.K ? 32 : 0;\n        const int b", FaultKind::bad_operand,
                   "fc::copy_async(next + offset"},
        PlantedBug{"source_misaligned", "p.a_stride_0 + k, a", "p.a_stride_0 + k + 4, a",
                   FaultKind::misaligned, "fc::copy_async(next + offset"},
        PlantedBug{"target_misaligned", "copy_async(next + offset", "copy_async(next + 8 + offset",
                   FaultKind::misaligned, "fc::copy_async(next + 8 + offset"},
        PlantedBug{"matrix_row_misaligned", "fc::load_matrices(b, here",
                   "fc::load_matrices(b, 4 + here", FaultKind::misaligned, "fc::load_matrices(b,"},
        PlantedBug{"store_misaligned", "p.c_stride_0 + n,", "p.c_stride_0 + n + 1,",
                   FaultKind::misaligned, "fc::store_global<2>"},
        PlantedBug{"store_past_the_end", "if (m < p.M && n < p.N)", "if (n < p.N)",
                   FaultKind::out_of_bounds, "fc::store_global<2>"},
        PlantedBug{"half_a_warp_multiplies", "fc::multiply<fc::f16>(sums[j],",
                   "if (lane < 16) fc::multiply<fc::f16>(sums[j],", FaultKind::divergence,
                   "fc::multiply<fc::f16>(sums[j], a"},
        PlantedBug{"lanes_leave_early", "  #pragma unroll\n  for (int j = 0; j < 8; ++j)\n    for",
                   "  if (lane == 7) return;\n  for (int j = 0; j < 8; ++j)\n    for",
                   FaultKind::barrier_mismatch, "// landed"},
        PlantedBug{"too_many_register_rows",
                   "for (int j = 0; j < 8; ++j)\n    for (int r = 0; r < 4",
                   "for (int j = 0; j < 9; ++j)\n    for (int r = 0; r < 4",
                   FaultKind::out_of_bounds, "sums[j][r] = 0.f"},
        PlantedBug{"too_many_registers_in_a_row", "for (int r = 0; r < 4", "for (int r = 0; r < 5",
                   FaultKind::out_of_bounds, "sums[j][r] = 0.f"},
        PlantedBug{"register_before_the_first", "sums[j + 1], a, b[2]",
                   "sums[j + 1], a, b[lane - 9]", FaultKind::out_of_bounds,
                   "fc::multiply<fc::f16>(sums[j + 1]"},
        PlantedBug{"one_warp_skips_the_barrier", "fc::barrier();  // read",
                   "if (warp != 3) fc::barrier();  // read", FaultKind::barrier_mismatch,
                   "// landed"},
        PlantedBug{"input_written", "fc::store_global<2>(p.c + m * p.c_stride_0 + n",
                   "fc::store_global<2>(const_cast<fc::f16*>(p.a) + m * p.a_stride_0 + n",
                   FaultKind::read_only, "fc::store_global<2>"}),
    [](const auto& info) { return info.param.name; });

TEST(UnwrittenRegisters, AreNotZero) {
  ProductRun run;
  run(with(matrix_product(), "sums[j][r] = 0.f", ""));
  EXPECT_TRUE(std::isnan(run.c[0]));
}

TEST(UnwrittenRegisters, ShowBehindAMaximum) {
  ProductRun run;
  run(with(with(matrix_product(), "sums[j][r] = 0.f", ""), "const int m = m_begin +",
           "sums[j][r * 2] = fc::max(-fc::min(sums[j][r * 2], 1.f), 1.f);\n      const int m = "
           "m_begin +"));
  EXPECT_TRUE(std::isnan(run.c[0]));
}

TEST(EmptyArrays, AreNoCxx) {
  EXPECT_THROW(ProductRun()(with(matrix_product(), "fc::u32 a[4];", "fc::u32 a[4], none[0];")),
               CompileError);
}

// Between the last read of a stage and the copy that reuses it stands only the second barrier.
TEST(MatrixProductRace, RemovedBarrierBeforeReuse) {
  const KernelSource source = with(matrix_product(), "fc::barrier();  // read", "");
  const EmulatorError error =
      failure_of([&] { ProductRun()(with(source, "p.K + 31", "p.K + 63")); });
  EXPECT_EQ(name_of(error.kind()), "data race");
  EXPECT_EQ(error.line(), line_of(source, "fc::copy_async(next + 4096 + offset")) << error.what();
  const std::string reader =
      fmt::format("at line {}, and no barrier", line_of(source, "fc::load_matrices(b, here"));
  EXPECT_NE(std::string(error.what()).find(reader), std::string::npos) << error.what();
}

// What an access into the gap between two rows would read belongs to the allocation, not to the
// tensor.
TEST(StridedTensor, GapBetweenRows) {
  const KernelSource correct = matrix_product();
  EXPECT_NO_THROW(ProductRun()(correct, 32));
  const KernelSource source =
      with(with(correct, "(p.K + 31) / 32", "(p.K + 63) / 32"), "k < p.K ? 16", "16 ? 16");
  const EmulatorError error = failure_of([&] { ProductRun()(source, 32); });
  EXPECT_EQ(name_of(error.kind()), "out-of-bounds access");
  EXPECT_EQ(error.line(), line_of(source, "fc::copy_async(next + offset"));
  EXPECT_NE(std::string(error.what()).find(", 72] of extents [96, 64]"), std::string::npos)
      << error.what();
}

// Every byte read was written, so the wrong place shows in the numbers and in the bank report.
TEST(WrongSwizzle, WrongNumbersAndConflicts) {
  const KernelSource source = with(
      matrix_product(),
      "const fc::u32 a_row = fc::chunk_offset<64, 32>(warp * 16 + lane % 16, k + lane / 16 * 8);",
      "const fc::u32 a_row = (warp * 16 + lane % 16) * 64 + (k + lane / 16 * 8) * 2;");
  ProductRun right, wrong;
  right(matrix_product());
  const EmulationReport report = wrong(source);
  EXPECT_NE(right.c, wrong.c);
  ASSERT_FALSE(report.banks.lines.empty());
  for (const BankLine& line : report.banks.lines) {
    const bool planted = line.line == line_of(source, "fc::load_matrices(a,");
    EXPECT_EQ(line.conflicts > 0, planted) << "line " << line.line;
    if (planted) {  // rows 64 bytes apart: four of eight in one bank, in each of four phases
      EXPECT_EQ(line.transactions, line.instructions * 16);
    }
  }
}

TEST(Coverage, UnwrittenAndRewrittenElementsAreCounted) {
  const KernelSource unwritten = with(matrix_product(), "m < p.M && n < p.N", "m < p.M && n < 32");
  EXPECT_EQ(ProductRun()(unwritten).outputs[0].unwritten, 96 * 32);
  const KernelSource twice = with(matrix_product(), "n_begin + j * 8 + lane % 4 * 2;",
                                  "n_begin + j / 2 * 16 + lane % 4 * 2;");
  const EmulationReport report = ProductRun()(twice);
  EXPECT_EQ(report.outputs[0].rewritten, 96 * 32);
  EXPECT_EQ(report.outputs[0].unwritten, 96 * 32);
}

// The first block that fails is the one reported, however many workers there are.
TEST(Message, SaysWhatWhereAndWhy) {
  const KernelSource source =
      with(matrix_product(), "m_begin + row < p.M && k < p.K ? 16", "k < p.K ? 16");
  const EmulatorError error = failure_of([&] { ProductRun()(source); });
  EXPECT_EQ(error.block(), 1);
  EXPECT_EQ(error.thread(), 0);
  const std::string line = fmt::format("{}", line_of(source, "fc::copy_async(next + offset"));
  EXPECT_EQ(
      std::string(error.what()),
      "out-of-bounds access in kernel matrix_product, block 1, thread 0 (warp 0, lane 0)\n"
      "  at:  matrix_product.cu:" +
          line +
          "\n  why: 16 bytes are accessed, 0 elements behind the end of a, the nearest tensor; by "
          "its strides that is a[96, 0] of extents [96, 64]\n"
          "  code: fc::copy_async(next + offset, p.a + (m_begin + row) * p.a_stride_0 + k, "
          "a_valid);\n"
          "  try: mask the access where the index leaves its extent");
}

}  // namespace
}  // namespace flashcore::testing
