// Phases of mbarriers, and numbered barriers: what they order, and how they are misused.
#include <gtest/gtest.h>

#include "tests/runtime/emulator/support/kernels.h"

namespace flashcore::testing {
namespace {

KernelSource kernel_of(std::initializer_list<std::string_view> lines, int threads = 64) {
  std::string statements = "const fc::u32 mbarrier = shared + 2048;\n";
  for (const std::string_view line : lines) statements += line;
  return small_kernel(statements, threads);
}

/// Fails with `kind` on the line that carries the comment "// here".
void expect_failure(const KernelSource& source, FaultKind kind, std::string_view says) {
  SCOPED_TRACE(source.body);
  const EmulatorError error = failure_of([&] { SmallRun()(source); });
  EXPECT_EQ(name_of(error.kind()), name_of(kind)) << error.what();
  EXPECT_EQ(error.line(), line_of(source, "// here")) << error.what();
  EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
}

constexpr std::string_view begin_with_32 =
    "if (thread == 0) {\n  fc::init_mbarrier(mbarrier, 32);\n  "
    "fc::publish_mbarriers();\n}\nfc::barrier();\n";
constexpr std::string_view begin_with_1 =
    "if (thread == 0) {\n  fc::init_mbarrier(mbarrier, 1);\n  "
    "fc::publish_mbarriers();\n}\nfc::barrier();\n";
constexpr std::string_view put = "fc::store_shared(shared + thread * 4, float(thread));\n";
constexpr std::string_view get =
    "const float value = fc::load_shared(shared + (thread - 32) * 4);  // here\n";

TEST(Phases, OrderWhatWasDoneBeforeTheArrivals) {
  SmallRun run;
  run(kernel_of({begin_with_32, "if (warp == 0) {\n", put, "fc::arrive(mbarrier);\n} else {\n",
                 "fc::wait_phase(mbarrier, 0);\n", get,
                 "fc::store_global<1>(p.y + lane * p.y_stride_0, &value);\n}\n"}));
  EXPECT_EQ(run.y[31 * SmallRun::row_stride], 31.f);
}

TEST(Phases, OrderNothingWithoutAWait) {
  // Behind a barrier of the block the last warp goes on first.
  constexpr std::string_view write = "if (warp == 1) {\n", read = "} else {\n";
  constexpr std::string_view get_late =
      "fc::load_shared(shared + (thread + 32) * 4);  // here\n}\n";
  expect_failure(kernel_of({begin_with_32, write, put, "fc::arrive(mbarrier);\n", read, get_late}),
                 FaultKind::race, "no barrier orders that write before this read");
  // The wait of one lane is not that of the others.
  expect_failure(kernel_of({begin_with_32, write, put, "fc::arrive(mbarrier);\n", read,
                            "if (lane == 0) fc::wait_phase(mbarrier, 0);\n", get_late}),
                 FaultKind::race, "was written by thread 33 at line");
}

// One lane arrives for its warp: what the others did is not ordered.
TEST(Phases, OrderOnlyWhatTheArrivingThreadKnows) {
  expect_failure(kernel_of({begin_with_1, "if (warp == 0) {\n", put,
                            "if (lane == 0) fc::arrive(mbarrier);\n} else {\n",
                            "fc::wait_phase(mbarrier, 0);\n", get, "}\n"}),
                 FaultKind::race, "was written by thread 1 at line");
}

TEST(Phases, OrderWhatAllLanesDidBeforeTheirWarpArrives) {
  SmallRun run;
  run(kernel_of({begin_with_1, "if (warp == 0) {\n", put,
                 "fc::arrive_as_warp(mbarrier, lane);\n} else {\n",
                 "fc::wait_phase(mbarrier, 0);\n", get,
                 "fc::store_global<1>(p.y + lane * p.y_stride_0, &value);\n}\n"}));
  EXPECT_EQ(run.y[31 * SmallRun::row_stride], 31.f);
  expect_failure(
      kernel_of({begin_with_1, "if (lane < 31) fc::arrive_as_warp(mbarrier, lane);  // here\n"}),
      FaultKind::divergence, "");
}

TEST(Phases, FollowEachOther) {
  SmallRun run;
  run(kernel_of({begin_with_32,
                 "if (warp == 0) {\n  for (int i = 0; i < 5; ++i) {\n    fc::arrive(mbarrier);\n"
                 "    fc::wait_phase(mbarrier, i % 2);\n  }\n  const float value = 1.f;\n"
                 "  fc::store_global<1>(p.y + lane * p.y_stride_0, &value);\n}\n"}));
  EXPECT_EQ(run.y[0], 1.f);
}

TEST(Phases, OneMayNotBeMissed) {
  expect_failure(kernel_of({begin_with_1, "if (warp == 1) fc::wait_phase(mbarrier, 0);  // here\n",
                            "else if (lane < 2) fc::arrive(mbarrier);\n"}),
                 FaultKind::deadlock, "so was the next one");
}

TEST(Phases, AreForSomebodyWhoWaits) {
  expect_failure(kernel_of({begin_with_1, "if (thread == 0) {\n  fc::arrive(mbarrier);\n",
                            "  fc::arrive(mbarrier);  // here\n}\n"}),
                 FaultKind::misused_mbarrier,
                 "phase 0 of the mbarrier at byte 2048 is over, and no thread has waited for it");
}

TEST(Mbarriers, AreInitialisedOnceAndFirst) {
  expect_failure(kernel_of({"fc::arrive(mbarrier);  // here\n"}), FaultKind::misused_mbarrier,
                 "no mbarrier was initialised at byte 2048");
  expect_failure(kernel_of({begin_with_1, "fc::wait_phase(mbarrier + 8, 0);  // here\n"}),
                 FaultKind::misused_mbarrier, "at byte 2056");
  expect_failure(kernel_of({begin_with_1, "fc::init_mbarrier(mbarrier, 2);  // here\n"}),
                 FaultKind::misused_mbarrier, "was initialised by thread 0");
  expect_failure(kernel_of({"if (thread == 0) fc::init_mbarrier(mbarrier + 4, 1);  // here\n"}),
                 FaultKind::misaligned, "4 past a multiple of 8");
  expect_failure(kernel_of({"if (thread == 0) fc::init_mbarrier(mbarrier, 0);  // here\n"}),
                 FaultKind::bad_operand, "an mbarrier for 0 arrivals");
  expect_failure(kernel_of({"if (thread == 0) fc::init_mbarrier(mbarrier + 2048, 1);  // here\n"}),
                 FaultKind::out_of_bounds, "the block has 4096");
  expect_failure(kernel_of({begin_with_1, "fc::wait_phase(mbarrier, 2);  // here\n"}),
                 FaultKind::bad_operand, "no parity 2");
}

TEST(Mbarriers, OwnTheirBytes) {
  expect_failure(kernel_of({begin_with_1, "fc::load_shared(mbarrier + 4);  // here\n"}),
                 FaultKind::misused_mbarrier, "byte 2052 of shared memory belongs to the mbarrier");
  expect_failure(kernel_of({begin_with_1, "fc::store_shared(mbarrier, 0u);  // here\n"}),
                 FaultKind::misused_mbarrier, "byte 2048 of shared memory belongs to the mbarrier");
}

TEST(Mbarriers, TakeAsManyArrivalsAsTheyWaitFor) {
  expect_failure(
      kernel_of({begin_with_1,
                 "if (thread < 2) {\n  if (thread == 0) fc::arrive_expect_tx(mbarrier, 64);\n"
                 "  else fc::arrive(mbarrier);  // here\n}\n"}),
      FaultKind::misused_mbarrier, "one arrival more than the 1 of a phase");
  const KernelSource missing =
      kernel_of({begin_with_32, "if (thread < 31) fc::arrive(mbarrier);\n",
                 "if (warp == 1) fc::wait_phase(mbarrier, 0);  // here\n"});
  expect_failure(missing, FaultKind::deadlock,
                 "mbarrier at byte 2048: phase 0 (parity 0) lacks 1 of 32 arrivals");
  const EmulatorError error = failure_of([&] { SmallRun()(missing); });
  EXPECT_NE(std::string(error.what()).find("threads 32-63 wait at wait_phase, line"),
            std::string::npos)
      << error.what();
}

TEST(NamedBarriers, OrderThoseThatMeet) {
  constexpr std::string_view exchange =
      "const float value = fc::load_shared(shared + (thread ^ 32) * 4);  // here\n";
  constexpr std::string_view read = "if (warp < 2) {\n";
  SmallRun run;
  run(kernel_of({put, "if (warp < 2) fc::meet(3, 64);\n", read, exchange,
                 "fc::store_global<1>(p.y + thread * p.y_stride_0, &value);\n}\n"},
                96));
  EXPECT_EQ(run.y[0], 32.f);
  EXPECT_EQ(run.y[40 * SmallRun::row_stride], 8.f);
  expect_failure(kernel_of({put, "if (warp < 2) fc::meet(3, 64);\n",
                            "if (warp == 2) fc::load_shared(shared);  // here\n"},
                           96),
                 FaultKind::race, "was written by thread 0");
}

// Who signals goes on, and learns nothing.
TEST(NamedBarriers, SignalsOrderOneWay) {
  constexpr std::string_view meeting = "if (warp == 0) fc::signal(1, 64);\nelse fc::meet(1, 64);\n";
  EXPECT_NO_THROW(SmallRun()(
      kernel_of({put, meeting, "if (warp == 1) fc::load_shared(shared + lane * 4);\n"})));
  expect_failure(kernel_of({put, "if (warp == 1) fc::signal(1, 64);\nelse fc::signal(1, 64);\n",
                            "fc::shuffle_xor(0.f, 1);\nif (warp == 1) fc::load_shared(shared + "
                            "lane * 4);  // here\n"}),
                 FaultKind::race, "was written by thread");
}

TEST(NamedBarriers, CountWholeWarps) {
  expect_failure(kernel_of({"fc::meet(1, 48);  // here\n"}), FaultKind::bad_operand,
                 "barrier 1 of 48 threads");
  expect_failure(kernel_of({"fc::meet(1, 96);  // here\n"}), FaultKind::bad_operand,
                 "in a block of 64");
  expect_failure(kernel_of({"fc::meet(0, 64);  // here\n"}), FaultKind::bad_operand,
                 "there is no barrier 0");
  expect_failure(kernel_of({"fc::meet(16, 64);  // here\n"}), FaultKind::bad_operand,
                 "there is no barrier 16");
  expect_failure(kernel_of({"fc::meet(1 + lane % 2, 64);  // here\n"}), FaultKind::bad_operand,
                 "lane 1 to barrier 2 of 64");
  expect_failure(
      kernel_of({"if (lane < 16) fc::meet(1, 64);\nelse fc::shuffle_xor(0.f, 1);  // here\n"}),
      FaultKind::divergence, "wait at meet");
}

TEST(NamedBarriers, BothSidesAgree) {
  expect_failure(
      kernel_of({"if (warp == 0) fc::signal(2, 64);\nelse fc::meet(2, 96);  // here\n"}, 96),
      FaultKind::barrier_mismatch, "warp 2 comes to barrier 2 of 96 threads, while line");
  expect_failure(kernel_of({"fc::signal(2, 64);\nfc::signal(2, 64);  // here\n"}),
                 FaultKind::barrier_mismatch, "warp 0 comes to barrier 2 a second time");
  expect_failure(kernel_of({"if (warp == 0) fc::meet(2, 64);  // here\n"}), FaultKind::deadlock,
                 "barrier 2: 32 of 64 threads have come (warps 0)");
}

TEST(Uniform, IsTheSameInAllLanes) {
  EXPECT_NO_THROW(SmallRun()(kernel_of({"fc::uniform(warp);\n"})));
  expect_failure(kernel_of({"fc::uniform(lane / 16);  // here\n"}), FaultKind::bad_operand,
                 "lane 16 has 1");
}

}  // namespace
}  // namespace flashcore::testing
