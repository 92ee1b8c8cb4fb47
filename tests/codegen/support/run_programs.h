// Programs of tests, lowered, emulated and held against the reference.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "dsl/program.h"
#include "dsl/schedule.h"
#include "tests/support/kernel_run.h"

namespace flashcore {

Schedule schedule_of(std::map<std::string, int> tiles, int warps_m, int warps_n = 1);
/// Products by wgmma, with tiles by TMA.
Schedule warpgroups(std::map<std::string, int> tiles, int warps_m);

/// Compares what a program computes under a schedule with the reference, launch by launch. Every element of its
/// outputs has to be written.
void expect_right(const Program& program, const Schedule& schedule,
                  const std::vector<RunInputs>& launches);

}  // namespace flashcore
