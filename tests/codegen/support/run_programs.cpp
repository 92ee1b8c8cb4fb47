#include "tests/codegen/support/run_programs.h"

#include <utility>

#include <gtest/gtest.h>

#include "codegen/generate.h"
#include "dsl/json.h"

namespace flashcore {

Schedule schedule_of(std::map<std::string, int> tiles, int warps_m, int warps_n) {
  Schedule schedule;
  schedule.tiles = std::move(tiles);
  schedule.warps_m = warps_m;
  schedule.warps_n = warps_n;
  return schedule;
}

Schedule warpgroups(std::map<std::string, int> tiles, int warps_m) {
  Schedule schedule = schedule_of(std::move(tiles), warps_m);
  schedule.instruction = Instruction::wgmma;
  schedule.copy = CopyInstruction::tma;
  return schedule;
}

void expect_right(const Program& program, const Schedule& schedule,
                  const std::vector<RunInputs>& launches) {
  const char* target = schedule.instruction == Instruction::wgmma ? "sm_90a" : "sm_80";
  SCOPED_TRACE(program.name() + " with " + to_json(schedule));
  KernelSource source;
  try {
    source = generate(program, schedule, find_target(target));
  } catch (const Error& error) {
    FAIL() << error.what();
  }
  for (const RunInputs& in : launches) {
    std::string lengths;
    for (const auto& [name, length] : in.extents)
      lengths += name + " " + std::to_string(length) + " ";
    SCOPED_TRACE(lengths);
    KernelRun run(program, in);
    try {
      const EmulationReport report = run.emulate(source);
      EXPECT_EQ(run.compare(), "");
      for (const OutputCoverage& output : report.outputs) EXPECT_EQ(output.unwritten, 0);
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

}  // namespace flashcore
