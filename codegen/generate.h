// The single entry of code generation: a program and a schedule become one CUDA file for a target.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "codegen/kernel_source.h"
#include "codegen/pass.h"
#include "dsl/program.h"
#include "dsl/schedule.h"
#include "dsl/target.h"

namespace flashcore {

/// Called with a pass's name and the program after it; first with "built", before any pass.
using PassObserver = std::function<void(std::string_view pass, const ir::Function&)>;

/// The program after every pass, verified after each. Throws ScheduleError where the schedule does
/// not fit the program or the target, with what would fit. Adds to `notes` what explain() tells.
ir::Function lower(const Program& program, const Schedule& schedule, const Target& target,
                   const PassObserver& observer = {}, PassNotes* notes = nullptr);

/// Lowers the program and prints it. The same arguments give the same bytes. Throws ScheduleError
/// where the schedule does not fit the program or the target.
KernelSource generate(const Program& program, const Schedule& schedule, const Target& target,
                      const PassObserver& observer = {}, PassNotes* notes = nullptr);

/// Of the sources of this library and of the language: while it stays, the same arguments give the
/// same code.
std::string_view generator_digest();

/// The names of the passes, in order.
std::vector<std::string_view> pass_names();

}  // namespace flashcore
