// Runs the passes over a program.
#pragma once

#include <functional>
#include <string_view>

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

}  // namespace flashcore
