// The single entry of code generation: a program and a schedule become one CUDA file for a target.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/kernel_source.h"
#include "dsl/program.h"
#include "dsl/schedule.h"
#include "dsl/target.h"

namespace flashcore {

/// Called with a pass's name and the program after it; first with "built", before any pass.
using PassObserver = std::function<void(std::string_view pass, const ir::Function&)>;

/// Lowers the program and prints it. The same arguments give the same bytes. Throws ScheduleError where
/// the schedule does not fit the program or the target.
KernelSource generate(const Program& program, const Schedule& schedule, const Target& target,
                      const PassObserver& observer = {});

/// The names of the passes, in order.
std::vector<std::string_view> pass_names();

/// Every reason the schedule cannot run the program on the target, each with what would work; nothing
/// is compiled.
std::vector<std::string> why_not(const Program& program, const Schedule& schedule,
                                 const Target& target);

}  // namespace flashcore
