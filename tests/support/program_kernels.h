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

/// The schedules and source texts of all kernels. Of several targets for which they are the same one is
/// enough in the emulator, which is told of the kernel and not of the target.
std::string text_of(std::span<const ProgramKernels> programs);

}  // namespace flashcore
