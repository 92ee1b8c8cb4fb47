// Whether a schedule can run a program on a target, and everything that stands in the way.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "dsl/program.h"
#include "dsl/schedule.h"
#include "dsl/target.h"

namespace flashcore {

/// Every reason the schedule cannot run the program on the target, each with what would work; empty
/// if it can. Nothing is compiled. A reason that shows only once an earlier one is out of the way
/// says what it takes for granted: "(taking a tile of 128 along rows)".
std::vector<std::string> why_not(const Program& program, const Schedule& schedule,
                                 const Target& target);

/// The same for schedules that are tried in turn, as build_first_fitting tries them: empty if one
/// of them can run, else every reason against the first.
std::vector<std::string> why_not(const Program& program, std::span<const Schedule> schedules,
                                 const Target& target);

}  // namespace flashcore
