// Schedules of a program in turn, the best first, until the code of one fits.
#pragma once

#include <cstddef>
#include <exception>
#include <span>

#include "dsl/error.h"
#include "dsl/schedule.h"

namespace flashcore {

/// What `build(schedule, those behind it)` returns for the first schedule for which it throws neither
/// ScheduleError nor CompileError. If there is none, throws what was wrong with the first.
template <class Build>
auto build_under_first_fitting(std::span<const Schedule> schedules, const Build& build) {
  std::exception_ptr first;
  for (std::size_t i = 0; i < schedules.size(); ++i) {
    try {
      return build(schedules[i], schedules.subspan(i + 1));
    } catch (const ScheduleError&) {
      if (!first) first = std::current_exception();
    } catch (const CompileError&) {
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
  throw ScheduleError({.what = "a build under no schedule",
                       .why = "the list is empty",
                       .fix = "attention_schedules(spec, target)",
                       .where = {}});
}

}  // namespace flashcore
