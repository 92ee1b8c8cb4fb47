// A program's kernels for one target, under schedules that it can run.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "codegen/kernel_source.h"
#include "dsl/program.h"
#include "dsl/schedule.h"
#include "dsl/target.h"

namespace flashcore {

struct ScheduledKernel {
  Schedule schedule;
  KernelSource source;
};

struct ProgramKernels {
  Program program;
  std::vector<ScheduledKernel> kernels;
};

/// Under all schedules that the target can run, or under the first of them; none if it can run none.
ProgramKernels generate_for(const Program& program, const std::vector<Schedule>& schedules,
                            const Target& target, bool all_schedules);

/// The text of all of them. Targets that get the same text need one run in the emulator, which knows
/// kernels and no targets.
std::string text_of(std::span<const ProgramKernels> programs);

}  // namespace flashcore
