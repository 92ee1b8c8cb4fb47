// Opaque blocks: right by way of shared memory, and wrong for whoever counts on an order of their
// elements.
#include <gtest/gtest.h>

#include "tests/runtime/emulator/support/kernels.h"

namespace flashcore::testing {
namespace {

// The identity at 0, b[r][c] = 16 r + c behind it, both 24 elements from row to row.
const std::string fill = R"(
for (int i = thread; i < 128; i += 32) {
  const int row = i / 8, column = i % 8 * 2, at = (row * 24 + column) * 2;
  fc::store_shared(shared + at, fc::pack<fc::f16>(row == column ? 1.f : 0.f, row == column + 1 ? 1.f : 0.f));
  fc::store_shared(shared + 1024 + at, fc::pack<fc::f16>(float(row * 16 + column), float(row * 16 + column + 1)));
}
fc::barrier();
)";

std::string multiply(std::string_view left_transposed, std::string_view right_transposed) {
  return fmt::format(R"(
fc::left_block<fc::f16, {}> a;
fc::load_block(a, shared, 24);  // load
fc::right_block<fc::f16, {}> b;
fc::load_block(b, shared + 1024, 24);
fc::sum_block d = {{}};
fc::multiply_blocks(d, a, b);
fc::store_block(shared + 2048, 24, d);
)",
                     left_transposed, right_transposed);
}

const std::string show = R"(
fc::barrier();
for (int q = thread; q < 64; q += 32) {
  float value[4];
  fc::load_shared<4>(value, shared + 2048 + (q / 4 * 24 + q % 4 * 4) * 4);  // read
  fc::store_global<4>(p.y + q * p.y_stride_0, value);
}
)";

float element(const SmallRun& run, int row, int column) {
  const int q = row * 4 + column / 4;
  return run.y[static_cast<std::size_t>(q * SmallRun::row_stride + column % 4)];
}

TEST(Blocks, MultiplyAndFindTheirOrderInSharedMemory) {
  for (const std::string_view left : {"false", "true"})
    for (const std::string_view right : {"false", "true"}) {
      SmallRun run;
      const EmulationReport report = run(small_kernel(fill + multiply(left, right) + show));
      for (int r = 0; r < 16; ++r)
        for (int c = 0; c < 16; ++c)
          EXPECT_EQ(element(run, r, c),
                    static_cast<float>(right == "true" ? c * 16 + r : r * 16 + c));
      for (const BankLine& line : report.banks.lines) {
        const bool of_a_block =
            line.primitive == Primitive::load_block || line.primitive == Primitive::store_block;
        EXPECT_TRUE(!of_a_block || line.conflicts == 0) << name_of(line.primitive);
      }
    }
}

TEST(Blocks, HaveNoOrderInRegisters) {
  SmallRun run;
  run(small_kernel(fill + multiply("false", "false") +
                   "fc::store_global<4>(p.y + thread * p.y_stride_0, d.held);\n"));
  int as_accumulator = 0;  // (lane / 4, 2 (lane % 4)), which m16n8k16 would hold first
  for (int lane = 0; lane < 32; ++lane)
    as_accumulator += run.y[static_cast<std::size_t>(lane * SmallRun::row_stride)] ==
                      static_cast<float>(lane / 4 * 16 + lane % 4 * 2);
  EXPECT_LT(as_accumulator, 4);
}

void expect_fault(const std::string& statements, FaultKind kind, std::string_view place) {
  const KernelSource source = small_kernel(statements);
  const EmulatorError error = failure_of([&] { SmallRun()(source); });
  EXPECT_EQ(name_of(error.kind()), name_of(kind)) << error.what();
  EXPECT_EQ(error.line(), line_of(source, place)) << error.what();
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  return text.replace(text.find(from), from.size(), to);
}

// Nobody knows which lane has written an element: not even its own warp may read without a barrier.
TEST(Blocks, AreReadBehindABarrier) {
  expect_fault(fill + multiply("false", "false") + replaced(show, "fc::barrier();\n", ""),
               FaultKind::race, "// read");
}

TEST(Blocks, AreLoadedBehindABarrier) {
  expect_fault(replaced(fill, "fc::barrier();\n", "") + multiply("false", "false"), FaultKind::race,
               "// load");
}

TEST(Blocks, BeginAtMultiplesOf32Bytes) {
  expect_fault(
      fill + replaced(multiply("false", "false"), "(a, shared, 24)", "(a, shared + 16, 24)"),
      FaultKind::misaligned, "// load");
  expect_fault(fill + replaced(multiply("false", "false"), "(a, shared, 24)", "(a, shared, 20)"),
               FaultKind::misaligned, "// load");
}

TEST(Blocks, AreTheSameForAllLanes) {
  expect_fault(fill + replaced(multiply("false", "false"), "(a, shared, 24)",
                               "(a, shared + lane / 16 * 32, 24)"),
               FaultKind::bad_operand, "// load");
}

}  // namespace
}  // namespace flashcore::testing
