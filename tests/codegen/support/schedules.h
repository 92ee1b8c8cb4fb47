// Schedules that several tests begin with.
#pragma once

#include "dsl/schedule.h"

namespace flashcore {

/// Products of warpgroups, of which each has 64 rows, on tiles that the copy engine brings.
inline Schedule warpgroups(int rows, int cols) {
  Schedule schedule;
  schedule.tiles = {{"rows", rows}, {"cols", cols}};
  schedule.instruction = Instruction::wgmma;
  schedule.copy = CopyInstruction::tma;
  schedule.warps_m = rows / 16;
  return schedule;
}

}  // namespace flashcore
