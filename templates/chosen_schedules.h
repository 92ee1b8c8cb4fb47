// The choice behind attention_schedules, for a problem of which no more is known than its answers.
#pragma once

#include <vector>

#include "templates/attention.h"
#include "templates/problem_questions.h"

namespace flashcore {

/// As attention_schedules. The table of winners asks `fixed`, the problem as the spec fixes it.
std::vector<Schedule> chosen_schedules(const AttentionSpec& spec, const Target& target,
                                       ProblemQuestions& problem, ProblemQuestions& fixed);

}  // namespace flashcore
