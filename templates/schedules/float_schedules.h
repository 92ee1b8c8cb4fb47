// Schedules of attention_forward on f32 tensors.
#pragma once

#include <vector>

#include "templates/attention.h"

namespace flashcore {

/// For products rounded to tf32, the one with the largest tiles that fit first. Empty where the
/// target's tensor cores do not take them.
std::vector<Schedule> float_schedules(const AttentionSpec& spec, const Target& target);

}  // namespace flashcore
