// Blocks of a cluster: what their barrier orders, and what may be done to another block's shared
// memory.
#include <gtest/gtest.h>

#include "tests/runtime/emulator/support/kernels.h"

namespace flashcore::testing {
namespace {

/// Two blocks of one warp.
KernelSource pair_of(std::initializer_list<std::string_view> lines) {
  std::string statements = "const int part = fc::block_x() % 2;\n";
  for (const std::string_view line : lines) statements += line;
  KernelSource source = small_kernel(statements);
  source.cluster = 2;
  return source;
}

/// Fails with `kind` on the line that carries the comment "// here".
EmulatorError expect_failure(const KernelSource& source, FaultKind kind, std::string_view says) {
  SCOPED_TRACE(source.body);
  const EmulatorError error = failure_of([&] { SmallRun()(source, 2); });
  EXPECT_EQ(name_of(error.kind()), name_of(kind)) << error.what();
  EXPECT_EQ(error.line(), line_of(source, "// here")) << error.what();
  EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
  return error;
}

constexpr std::string_view begin = "fc::enter_cluster();\nfc::wait_cluster();\n";
constexpr std::string_view address =
    "const fc::u32 there = fc::cluster_address(shared + thread * 4, 1 - part);\nconst float mine = "
    "float(part * 100 + lane);\n";
constexpr std::string_view give = "fc::store_cluster<1>(there, &mine);\n",
                           give_here = "fc::store_cluster<1>(there, &mine);  // here\n";
constexpr std::string_view arrive = "fc::arrive_at_cluster();\n", await = "fc::wait_cluster();\n";
constexpr std::string_view
    get = "const float value = fc::load_shared(shared + thread * 4);\n",
    get_here = "const float value = fc::load_shared(shared + thread * 4);  // here\n";
constexpr std::string_view show =
    "fc::store_global<1>(p.y + (part * 32 + lane) * p.y_stride_0, &value);\n";

TEST(Clusters, GiveEachOtherValues) {
  SmallRun run;
  run(pair_of({begin, address, give, arrive, await, get, show}), 2);
  EXPECT_EQ(run.y[31 * SmallRun::row_stride], 131.f);
  EXPECT_EQ(run.y[(32 + 7) * SmallRun::row_stride], 7.f);
}

TEST(Clusters, RunOneAfterTheOther) {
  SmallRun run;
  run(pair_of(
          {begin, address, give, arrive, await, get, "if (fc::block_x() >= 4) {\n", show, "}\n"}),
      6);
  EXPECT_EQ(run.y[31 * SmallRun::row_stride], 131.f);
}

TEST(Clusters, WaitForThreadsThatHaveNotLeft) {
  SmallRun run;
  run(pair_of({begin, "if (part == 1) return;\n", arrive, await, "const float value = 1;\n", show}),
      2);
  EXPECT_EQ(run.y[0], 1.f);
}

TEST(Clusters, NobodyWritesBeforeTheOtherBlockHasBegun) {
  expect_failure(pair_of({address, give_here, "fc::enter_cluster();\n", await}), FaultKind::race,
                 "whether it has begun");
}

TEST(Clusters, NobodyLeavesBeforeItKnowsOfTheLastWrite) {
  // What is gone and what goes on first is up to the machine: here the later block does.
  expect_failure(pair_of({begin, address, "if (part == 1) return;\n", give_here, arrive, await}),
                 FaultKind::race, "after it has left");
  expect_failure(pair_of({begin, address, "if (part == 0) return;\n", give_here, arrive, await}),
                 FaultKind::race, "the write may come later");
}

TEST(Clusters, ReadsAreOrderedBehindWrites) {
  const EmulatorError error =
      expect_failure(pair_of({begin, address, "if (part == 1) {\n", give, "} else {\n", get_here,
                              show, "}\n", arrive, await}),
                     FaultKind::race, "no barrier orders that write before this read");
  EXPECT_EQ(error.block(), 0);
  EXPECT_LT(error.thread(), 32);
}

TEST(Clusters, AnEntryOrdersNothing) {
  expect_failure(pair_of({begin, address, give, "fc::enter_cluster();\n", await, get_here, arrive,
                          await, show}),
                 FaultKind::race, "no barrier orders that write before this read");
}

TEST(Clusters, WritesAreOrderedBehindReads) {
  expect_failure(pair_of({"fc::store_shared(shared + thread * 4, 1.f);\n", begin, address,
                          give_here, arrive, await}),
                 FaultKind::race, "no barrier orders that write before this one");
}

constexpr std::string_view begin_with_mbarrier =
    "if (thread == 0) {\n  fc::init_mbarrier(shared, 2);\n  fc::publish_mbarriers();\n}\n"
    "fc::arrive_at_cluster();\nfc::wait_cluster();\n"
    "const fc::u32 other = fc::cluster_address(shared, 1 - part) - shared;\n";

TEST(Clusters, ArriveInBothBlocks) {
  // A phase of each mbarrier is over when a thread of either block has come.
  SmallRun run;
  run(pair_of({begin_with_mbarrier,
               "if (thread == 0) fc::arrive_in_both(shared, other);\nfc::wait_phase(shared, 0);\n"
               "const float value = 1;\n",
               show, arrive, await}),
      2);
  EXPECT_EQ(run.y[(32 + 7) * SmallRun::row_stride], 1.f);
}

TEST(Clusters, NobodyLeavesBeforeItKnowsOfTheLastArrival) {
  expect_failure(pair_of({begin_with_mbarrier,
                          "if (part == 1) return;\n"
                          "if (thread == 0) fc::arrive_in_both(shared, other);  // here\n",
                          arrive, await}),
                 FaultKind::race, "after it has left");
  expect_failure(pair_of({begin_with_mbarrier,
                          "if (part == 0) return;\n"
                          "if (thread == 0) fc::arrive_in_both(shared, other);  // here\n",
                          arrive, await}),
                 FaultKind::race, "the write may come later");
}

TEST(Clusters, NobodyArrivesWhereNoBlockIs) {
  expect_failure(pair_of({begin_with_mbarrier, "fc::arrive_in_both(shared, 5u << 24);  // here\n"}),
                 FaultKind::bad_operand, "is no address in a block of the cluster");
}

TEST(Clusters, ArriveAndWaitInTurn) {
  expect_failure(pair_of({"fc::enter_cluster();\n", "fc::arrive_at_cluster();  // here\n"}),
                 FaultKind::barrier_mismatch, "a second time");
  expect_failure(pair_of({begin, "fc::wait_cluster();  // here\n"}), FaultKind::barrier_mismatch,
                 "has not arrived");
  expect_failure(pair_of({begin, "fc::arrive_at_cluster();  // here\n"}),
                 FaultKind::barrier_mismatch, "leaves the kernel");
}

TEST(Clusters, StayWhereAThreadIsMissing) {
  const EmulatorError error = expect_failure(
      pair_of({begin, "if (part == 0) {\n", arrive, "fc::wait_cluster();  // here\n", "} else {\n",
               "if (thread == 0) {\n  fc::init_mbarrier(shared, 2);\n  fc::wait_phase(shared, "
               "0);\n}\n}\n"}),
      FaultKind::deadlock, "the cluster's barrier: 1 of 33 threads are missing");
  EXPECT_EQ(error.block(), 0);
}

TEST(Clusters, AnAddressIsThatOfAPeer) {
  expect_failure(pair_of({begin, "fc::cluster_address(shared, 2);  // here\n"}),
                 FaultKind::bad_operand, "no block 2");
  expect_failure(
      pair_of({begin, "const float mine = 1;\nfc::store_cluster<1>(shared, &mine);  // here\n"}),
      FaultKind::bad_operand, "no address in a block");
  expect_failure(pair_of({begin, address, "fc::store_cluster<1>(there + 4096, &mine);  // here\n"}),
                 FaultKind::out_of_bounds, "the block has 4096");
}

}  // namespace
}  // namespace flashcore::testing
