// Schedules of attention_forward on wgmma.
#pragma once

#include "templates/problem_questions.h"

namespace flashcore {

/// The fastest of those measured for a spec, or for one like it, and a problem.
Schedule hopper_schedule(const AttentionSpec& spec, ProblemQuestions& problem);

}  // namespace flashcore
