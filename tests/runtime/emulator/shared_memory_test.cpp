// The rules of shared memory and of meeting threads, on kernels of a few statements.
#include <gtest/gtest.h>

#include "tests/runtime/emulator/support/kernels.h"

namespace flashcore::testing {
namespace {

/// Fails with `kind` on the line that carries the comment "// here".
void expect_failure(const KernelSource& source, FaultKind kind) {
  SCOPED_TRACE(source.body);
  const EmulatorError error = failure_of([&] { SmallRun()(source); });
  EXPECT_EQ(name_of(error.kind()), name_of(kind)) << error.what();
  EXPECT_EQ(error.line(), line_of(source, "// here")) << error.what();
}

constexpr std::string_view put = "fc::store_shared(shared + thread * 4, float(thread));\n";
constexpr std::string_view show =
    "if (thread < 64) fc::store_global<1>(p.y + thread * p.y_stride_0, &value);\n";

KernelSource kernel_of(std::initializer_list<std::string_view> lines, int threads = 32) {
  std::string statements;
  for (const std::string_view line : lines) statements += line;
  return small_kernel(statements, threads);
}

TEST(SharedMemory, NeighbourReadsAfterBarrier) {
  SmallRun run;
  run(kernel_of(
      {put, "fc::barrier();\nconst float value = fc::load_shared(shared + (thread ^ 33) * 4);\n",
       show},
      64));
  for (int row = 0; row < SmallRun::rows; ++row)
    EXPECT_EQ(run.y[static_cast<std::size_t>(row * SmallRun::row_stride)],
              static_cast<float>(row ^ 33));
}

TEST(SharedMemory, OwnWordNeedsNoBarrier) {
  EXPECT_NO_THROW(SmallRun()(
      kernel_of({put, "const float value = fc::load_shared(shared + thread * 4);\n", show})));
}

TEST(SharedMemory, NeighbourReadsWithoutBarrier) {
  // Within a warp, and with a shuffle between: lanes meet there, but no memory is ordered.
  expect_failure(kernel_of({put,
                            "float value = fc::shuffle_xor(0.f, 1);\n"
                            "value = fc::load_shared(shared + (thread ^ 1) * 4);  // here\n",
                            show}),
                 FaultKind::race);
}

TEST(SharedMemory, TwoWritersOfOneWord) {
  expect_failure(kernel_of({"fc::store_shared(shared + thread / 2 * 4, 1.f);  // here\n"}),
                 FaultKind::race);
}

// The shuffle makes every lane read before any of them writes, and orders nothing.
TEST(SharedMemory, WriteAfterReadOfAnother) {
  expect_failure(
      kernel_of({put, "fc::barrier();\nfloat value = fc::load_shared(shared + (thread ^ 1) * 4);\n",
                 "value = fc::shuffle_xor(value, 1);\n",
                 "fc::store_shared(shared + thread * 4, value);  // here\n"}),
      FaultKind::race);
}

// One of several readers writes: it is ordered behind its own read, not behind the others'.
TEST(SharedMemory, WriteAfterReadOfSeveral) {
  expect_failure(kernel_of({put, "fc::barrier();\nfloat value = fc::load_shared(shared);\n",
                            "value = fc::shuffle_xor(value, 1);\n",
                            "if (thread == 31) fc::store_shared(shared, value);  // here\n"}),
                 FaultKind::race);
}

TEST(SharedMemory, NeighbouringWordsDoNotRace) {
  EXPECT_NO_THROW(SmallRun()(kernel_of({put,
                                        "fc::store_shared(shared + thread * 4, 1.f);\nconst float "
                                        "value = fc::load_shared(shared + thread * 4);\n",
                                        show})));
}

TEST(SharedMemory, MatrixRowWrittenByItsOwnLaneStillNeedsBarrier) {
  constexpr std::string_view fill =
      "for (int i = 0; i < 4; ++i) fc::store_shared(shared + thread * 16 + i * 4, 0u);\n";
  constexpr std::string_view load =
      "fc::u32 a[4];\nfc::load_matrices(a, shared + thread * 16);  // here\n";
  EXPECT_NO_THROW(SmallRun()(kernel_of({fill, "fc::barrier();\n", load})));
  expect_failure(kernel_of({fill, load}), FaultKind::race);
}

TEST(SharedMemory, UnwrittenBytes) {
  expect_failure(kernel_of({put, "fc::barrier();\n",
                            "fc::load_shared(shared + 128 + thread * 4);  // here\n"}),
                 FaultKind::uninitialized);
  // The second half of a chunk, too; and what an earlier block wrote is gone.
  expect_failure(
      kernel_of({"if (thread < 2) fc::store_shared(shared + thread * 4, 0u);\nfc::barrier();\n",
                 "fc::load_shared_chunk(shared);  // here\n"}),
      FaultKind::uninitialized);
  const KernelSource second =
      kernel_of({"if (fc::block_x() == 0) fc::store_shared(shared + thread * 4, 0u);\n",
                 "fc::load_shared(shared + thread * 4);  // here\n"});
  const EmulatorError error = failure_of([&] { SmallRun()(second, 2); });
  EXPECT_EQ(error.block(), 1);
  EXPECT_EQ(name_of(error.kind()), "read of unwritten shared memory");
}

TEST(SharedMemory, Bounds) {
  EXPECT_NO_THROW(SmallRun()(kernel_of({"fc::store_shared(shared + 4092 - thread * 4, 0u);\n"})));
  expect_failure(kernel_of({"fc::store_shared(shared + 4096 - thread * 4, 0u);  // here\n"}),
                 FaultKind::out_of_bounds);
  expect_failure(kernel_of({"fc::store_shared(shared - 4 + thread * 4, 0u);  // here\n"}),
                 FaultKind::out_of_bounds);
}

TEST(SharedMemory, Alignment) {
  expect_failure(kernel_of({"fc::store_shared(shared + 2 + thread * 4, 0u);  // here\n"}),
                 FaultKind::misaligned);
  expect_failure(kernel_of({"fc::load_shared_chunk(shared + 8 + thread * 16);  // here\n"}),
                 FaultKind::misaligned);
}

// The first 2 of 4 floats are copied, zeros follow, and the data is the source's at the wait.
TEST(AsyncCopy, LandsAtTheWaitWithZeroFill) {
  SmallRun run;
  run(kernel_of(
      {"fc::copy_async(shared + thread * 16, p.x + thread * p.x_stride_0, thread % 2 * 8);\n",
       "fc::commit_copies();\nfc::wait_copies<0>();\n",
       "const fc::chunk value = fc::load_shared_chunk(shared + thread * 16);\n",
       "fc::store_chunk(p.y + thread * p.y_stride_0, value);\n"}));
  for (std::size_t row = 0; row < 32; ++row) {
    for (std::size_t i = 0; i < 4; ++i) {
      const bool valid = row % 2 == 1 && i < 2;
      EXPECT_EQ(run.y[row * 8 + i], valid ? static_cast<float>(row * 4 + i) : 0.f)
          << row << ", " << i;
    }
  }
}

TEST(AsyncCopy, OnlyGroupsThatTheWaitCoversLand) {
  constexpr std::string_view two_groups =
      "for (int i = 0; i < 2; ++i) {\n"
      "  fc::copy_async(shared + i * 512 + thread * 16, p.x + thread * p.x_stride_0, 16);\n"
      "  fc::commit_copies();\n}\nfc::wait_copies<1>();\n";
  EXPECT_NO_THROW(SmallRun()(kernel_of({two_groups, "fc::load_shared(shared + thread * 16);\n"})));
  expect_failure(kernel_of({two_groups, "fc::load_shared(shared + 512 + thread * 16);  // here\n"}),
                 FaultKind::in_flight);
  expect_failure(
      kernel_of({two_groups, "fc::store_shared(shared + 512 + thread * 16, 0u);  // here\n"}),
      FaultKind::in_flight);
}

TEST(AsyncCopy, OthersSeeItAfterABarrier) {
  constexpr std::string_view copy =
      "fc::copy_async(shared + thread * 16, p.x + thread * p.x_stride_0, "
      "16);\nfc::commit_copies();\nfc::wait_copies<0>();\n";
  constexpr std::string_view read =
      "fc::shuffle_xor(0.f, 1);\nfc::load_shared(shared + (thread ^ 1) * 16);  // here\n";
  EXPECT_NO_THROW(SmallRun()(kernel_of({copy, "fc::barrier();\n", read})));
  expect_failure(kernel_of({copy, read}), FaultKind::race);
}

TEST(AsyncCopy, MayNotOvertakeAReader) {
  expect_failure(
      kernel_of({put, "fc::barrier();\nfc::load_shared(shared + (thread ^ 4) * 4);\n",
                 "if (thread < 8) fc::copy_async(shared + thread * 16, p.x, 16);  // here\n"}),
      FaultKind::race);
}

TEST(Meeting, DifferentLines) {
  expect_failure(kernel_of({"if (lane == 3) fc::shuffle_xor(0.f, 1);  // here\n",
                            "else fc::shuffle_xor(0.f, 1);\n"}),
                 FaultKind::divergence);
}

TEST(Meeting, LaneLeaves) {
  const KernelSource source =
      kernel_of({"if (lane == 3) return;\n", "fc::shuffle_xor(0.f, 1);  // here\n"});
  expect_failure(source, FaultKind::divergence);
  const EmulatorError error = failure_of([&] { SmallRun()(source); });
  EXPECT_NE(std::string(error.what()).find("threads 0-2 wait at shuffle_xor, line"),
            std::string::npos)
      << error.what();
}

TEST(Meeting, LaneWaitsAtABarrier) {
  expect_failure(
      kernel_of({"if (lane == 0) fc::barrier();\n", "fc::shuffle_xor(0.f, 1);  // here\n"}),
      FaultKind::divergence);
  expect_failure(
      kernel_of({"if (lane == 0) fc::shuffle_xor(0.f, 1);\n", "fc::barrier();  // here\n"}),
      FaultKind::divergence);
}

TEST(Meeting, BarriersOfDifferentLines) {
  expect_failure(
      kernel_of({"if (warp == 0) fc::barrier();\n", "else fc::barrier();  // here\n"}, 64),
      FaultKind::barrier_mismatch);
}

TEST(Meeting, WarpLeavesBeforeABarrier) {
  expect_failure(kernel_of({"if (warp == 0) return;\n", "fc::barrier();  // here\n"}, 64),
                 FaultKind::barrier_mismatch);
  expect_failure(kernel_of({"if (warp == 1) return;\n", "fc::barrier();  // here\n"}, 64),
                 FaultKind::barrier_mismatch);
}

TEST(Meeting, ShuffleExchanges) {
  SmallRun run;
  run(kernel_of({"float value = float(thread);\nfor (int mask = 1; mask < 32; mask *= 2) value += "
                 "fc::shuffle_xor(value, mask);\n",
                 "value += fc::shuffle_xor(float(lane), 5);\n",
                 "value += 1000 * fc::shuffle(float(lane), (lane * 3 + 7) % 32);\n", show},
                64));
  for (int row = 0; row < 64; ++row)
    EXPECT_EQ(run.y[static_cast<std::size_t>(row * 8)],
              static_cast<float>((row < 32 ? 496 : 1520) + (row % 32 ^ 5) +
                                 1000 * ((row % 32 * 3 + 7) % 32)));
  expect_failure(kernel_of({"fc::shuffle_xor(0.f, 32);  // here\n"}), FaultKind::bad_operand);
}

TEST(Outputs, AreReadOnlyWhereTheBlockWrote) {
  constexpr std::string_view write =
      "const float value = 1.f;\nfc::store_global<1>(p.y + fc::block_x() * 4 * p.y_stride_0 + "
      "lane / 4 * p.y_stride_0 + lane % 4, &value);\n";
  constexpr std::string_view own =
      "float back;\nfc::load_global<1>(&back, p.y + fc::block_x() * 4 * p.y_stride_0);  // "
      "here\n";
  EXPECT_NO_THROW(SmallRun()(kernel_of({write, own})));
  expect_failure(kernel_of({own}), FaultKind::unwritten_output);
  const KernelSource other =
      kernel_of({write, "float back;\nfc::load_global<1>(&back, p.y);  // here\n"});
  const EmulatorError error = failure_of([&] { SmallRun()(other, 2); });
  EXPECT_EQ(error.block(), 1);
  EXPECT_EQ(name_of(error.kind()), "read of an unwritten output");
}

}  // namespace
}  // namespace flashcore::testing
