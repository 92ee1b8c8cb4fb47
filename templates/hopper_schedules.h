// Schedules of attention_forward on wgmma.
#pragma once

#include "templates/attention.h"

namespace flashcore {

/// The fastest of those measured for a spec, or for one like it, and a problem.
Schedule hopper_schedule(const AttentionSpec& spec, const AttentionProblem& problem);

}  // namespace flashcore
