// Specs and schedules as JSON: the form in which they are saved, shipped with a library of kernels,
// and cross from Python. Reading is strict, because a misspelled field would silently keep its
// default.
#pragma once

#include <string>
#include <string_view>

#include "dsl/attention_spec.h"
#include "dsl/program.h"
#include "dsl/schedule.h"

namespace flashcore {

std::string to_json(const AttentionSpec& spec);
std::string to_json(const Schedule& schedule);

/// Fields that are absent keep their defaults. Throw SpecError or ScheduleError with every field
/// that is unknown or has the wrong type.
AttentionSpec attention_spec_from_json(std::string_view text);
Schedule schedule_from_json(std::string_view text);

/// What a field of a schedule, or a value of one, is called now; empty where it has no other name.
std::string_view present_name(std::string_view old_name);

/// How deep arrays and objects may stand in each other. What is written nests three deep; a text
/// that nests thousands deep would end the process where it is copied, printed or destroyed.
inline constexpr int deepest_json = 64;
[[nodiscard]] bool too_deep_for_json(std::string_view text);

}  // namespace flashcore
