// Outputs that go from registers to memory beside the copy engine: four lanes exchange columns, so
// that each of them stores eight side by side, also where a row's columns are no multiple of 32.
#include <string>

#include <gtest/gtest.h>

#include "codegen/generate.h"
#include "templates/attention.h"
#include "tests/templates/support/attention_run.h"

namespace flashcore {
namespace {

class OutputStores : public testing::TestWithParam<int> {};

TEST_P(OutputStores, WriteWholeChunksOfEveryRowOnce) {
  const AttentionSpec spec{.head_dim = 32, .head_dim_v = GetParam(), .mask = causal()};
  Schedule schedule;
  schedule.instruction = Instruction::wgmma;
  schedule.copy = CopyInstruction::tma;
  schedule.tiles = {{"rows", 128}, {"cols", 64}};
  schedule.warps_m = 8;
  schedule.staged_stores = false;
  for (const bool persistent : {false, true}) {
    schedule.persistent = persistent;
    const KernelSource source = generate(attention_forward(spec), schedule, find_target("sm_90a"));
    EXPECT_NE(source.text().find(", each lane 8 columns"), std::string::npos);
    EXPECT_EQ(source.text().find("fc::store_global<"), std::string::npos);
    KernelRun run = attention_run(spec, {.batch = 1, .heads = 2, .q_len = 150, .kv_len = 70});
    const EmulationReport report = run.emulate(source);
    EXPECT_EQ(run.compare(), "");
    for (const OutputCoverage& output : report.outputs) EXPECT_EQ(output.rewritten, 0);
  }
}

// In tiles of 16, 48, 80 and 112 columns two fragments are left of a group of four; rows of 72 end in
// front of the last fragment, and rows of 76 inside it.
INSTANTIATE_TEST_SUITE_P(Columns, OutputStores, testing::Values(16, 48, 72, 76, 80, 96, 112),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace flashcore
