// Attention forward, written in the public language: the program of FlashAttention-2 and the
// schedules it ships with.
#pragma once

#include <string_view>
#include <vector>

#include "dsl/flashcore.h"
#include "templates/attention_problem.h"

namespace flashcore {

/// Tensors q, k, v, o, lse if the spec asks for it, and the tensors that its expressions capture;
/// scalar `scale` (f32, > 0). Axes batch, head, rows (query rows), cols (key columns), d and dv.
/// Throws SpecError with every reason of check(spec).
Program attention_forward(const AttentionSpec& spec);

/// The same of packed sequences, but of those alone that attention_decode_plan lists (decode_plan.h): nothing is
/// stored of others.
Program attention_forward_of_long(const AttentionSpec& spec);

/// The shipped schedule for a spec and a target: the winner of a search (attention_winners.h), if
/// there is one; otherwise, on Hopper, the one that the cost model (cost_model.h) takes to be the
/// fastest for the problem on the GPU that it was measured on.
Schedule attention_schedule(const AttentionSpec& spec, const Target& target,
                            const AttentionProblem& problem = {});

/// That schedule, followed by safer ones, which leave the compiler more registers. Large tiles use
/// all registers, and another version of the compiler may need one more: build_first_fitting takes
/// the first of these schedules whose code does not spill. Schedules for which the lookups of a
/// mask leave too few registers are left out.
std::vector<Schedule> attention_schedules(const AttentionSpec& spec, const Target& target,
                                          const AttentionProblem& problem = {});

/// Every list that attention_schedules returns for one of the problems, each once, and perhaps
/// lists that it returns for none of them; the first is that for a problem of unknown size.
/// `winners` is a further table of winners (attention_winners.h), which takes precedence.
std::vector<std::vector<Schedule>> reachable_schedules(const AttentionSpec& spec,
                                                       const Target& target,
                                                       const AttentionProblems& problems,
                                                       std::string_view winners = {});

}  // namespace flashcore
