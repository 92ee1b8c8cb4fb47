// The schedules of a spec among which its problems choose.
#pragma once

#include <vector>

#include "templates/attention.h"
#include "templates/choice/expression_traits.h"

namespace flashcore {

/// One list for each schedule that may be the best for some problem: that schedule, followed by
/// safer ones (attention_schedules says what for). One list alone where nothing depends on the
/// problem.
std::vector<std::vector<Schedule>> schedule_lists(const AttentionSpec& spec, const Target& target,
                                                  const MaskTraits& mask, const ScoreTraits& score);

}  // namespace flashcore
