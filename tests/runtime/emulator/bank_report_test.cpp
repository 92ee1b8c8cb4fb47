// Bank conflicts, by hand-counted patterns and by the layout that kernels use.
#include <gtest/gtest.h>

#include "tests/runtime/emulator/support/kernels.h"

namespace flashcore::testing {
namespace {

BankLine only_line(const BankReport& report) {
  EXPECT_EQ(report.lines.size(), 1u);
  return report.lines.at(0);
}

/// 32 lanes access 4 bytes at `address(lane)`.
template <class Address>
BankLine four_byte_accesses(const Address& address) {
  BankCounter counter(1);
  for (int lane = 0; lane < 32; ++lane)
    counter.gather(Primitive::load_shared, 7, lane, static_cast<std::uint32_t>(address(lane)), 4);
  counter.flush();
  return only_line(counter.report());
}

TEST(BankCounter, FourByteAccesses) {
  EXPECT_EQ(four_byte_accesses([](int lane) { return lane * 4; }).conflicts, 0);
  EXPECT_EQ(four_byte_accesses([](int) { return 64; }).conflicts, 0);  // one word for all
  EXPECT_EQ(four_byte_accesses([](int lane) { return lane * 8; }).conflicts, 1);
  EXPECT_EQ(four_byte_accesses([](int lane) { return lane * 128; }).conflicts, 31);
  EXPECT_EQ(four_byte_accesses([](int lane) { return lane / 4 * 128 + lane % 4 * 4; }).conflicts,
            7);
  EXPECT_EQ(four_byte_accesses([](int lane) { return lane * 132; }).conflicts, 0);  // padded rows
}

TEST(BankCounter, SixteenByteAccessesGoInPhasesOfEightLanes) {
  BankCounter counter(1);
  for (std::uint32_t lane = 0; lane < 32; ++lane)
    counter.gather(Primitive::copy_async, 9, static_cast<int>(lane), lane * 16, 16);
  counter.flush();
  EXPECT_EQ(only_line(counter.report()).transactions, 4);
  EXPECT_EQ(only_line(counter.report()).conflicts, 0);
  for (std::uint32_t lane = 0; lane < 32; ++lane)
    counter.gather(Primitive::copy_async, 9, static_cast<int>(lane), lane * 128, 16);
  counter.flush();
  EXPECT_EQ(only_line(counter.report()).instructions, 2);
  EXPECT_EQ(only_line(counter.report()).transactions, 4 + 32);
}

// Lanes come one after the other, each with all its accesses; the k-th ones belong together.
TEST(BankCounter, GathersTheLanesOfAnInstruction) {
  BankCounter counter(2);
  for (int thread = 0; thread < 64; ++thread) {
    for (int i = 0; i < 3; ++i) {
      if (thread == 5 && i == 2) continue;  // a lane that takes part less often
      counter.gather(Primitive::store_shared, 3, thread,
                     static_cast<std::uint32_t>(i * 4096 + thread * 4), 4);
    }
  }
  counter.flush();
  EXPECT_EQ(only_line(counter.report()).instructions, 6);
  EXPECT_EQ(only_line(counter.report()).conflicts, 0);
}

/// A tile of 64 rows is copied in, panel by panel (neighbouring threads take neighbouring chunks of
/// 64, then 32, then 16 columns), read as matrices, plain and transposed, and read back in chunks.
EmulationReport tile_traffic(int columns, const std::string& offset) {
  const std::string by_panels = fmt::format(R"(
  for (int begin = 0, width; begin < {0}; begin += width) {{
    width = {0} - begin >= 64 ? 64 : {0} - begin >= 32 ? 32 : 16;
    for (int chunk = thread; chunk < 8 * width; chunk += 32) {{
      const int row = chunk / (width / 8), column = begin + chunk % (width / 8) * 8;
)",
                                            columns);
  const std::string statements = fmt::format(R"({0}
      fc::copy_async(shared + {1}, p.x, 16);
    }}
  }}
  fc::commit_copies();
  fc::wait_copies<0>();
  fc::barrier();
  for (int begin = 0; begin < 64; begin += 16)
    for (int c = 0; c < {2}; c += 16) {{
      fc::u32 a[4];
      const int row = begin + lane % 16, column = c + lane / 16 * 8;
      fc::load_matrices(a, shared + {1});
      fc::load_matrices_transposed(a, shared + {1});
    }}
  {0}
      fc::load_shared_chunk(shared + {1});
    }}
  }})",
                                             by_panels, offset, columns);
  return SmallRun()(small_kernel(statements, 32, 64 * columns * 2));
}

class SharedTile : public ::testing::TestWithParam<int> {};

TEST_P(SharedTile, SwizzledLayoutHasNoConflicts) {
  const EmulationReport report =
      tile_traffic(GetParam(), fmt::format("fc::chunk_offset<64, {}>(row, column)", GetParam()));
  ASSERT_EQ(report.banks.lines.size(), 4u);
  for (const BankLine& line : report.banks.lines) {
    EXPECT_EQ(line.conflicts, 0) << name_of(line.primitive);
    EXPECT_EQ(line.transactions, line.instructions * 4) << name_of(line.primitive);
  }
}

TEST_P(SharedTile, PlainLayoutConflictsWhereRowsMeetInABank) {
  const int row_bytes = GetParam() * 2;
  int columns_met = 128;  // distance of two rows among the banks
  while (row_bytes % columns_met != 0) columns_met /= 2;
  const EmulationReport report =
      tile_traffic(GetParam(), fmt::format("row * {} + column * 2", row_bytes));
  for (const BankLine& line : report.banks.lines) {
    if (line.primitive == Primitive::load_matrices) {
      EXPECT_EQ(line.transactions, line.instructions * 4 * columns_met / 16);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Columns, SharedTile,
                         ::testing::Values(16, 32, 48, 64, 80, 96, 112, 128, 256));

}  // namespace
}  // namespace flashcore::testing
