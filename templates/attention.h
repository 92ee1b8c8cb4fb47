// Attention forward, written in the public language: the program of FlashAttention-2 and the
// schedules it ships with.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "dsl/flashcore.h"

namespace flashcore {

/// Tensors q, k, v, o, lse if the spec asks for it, and the tensors that its expressions capture;
/// scalar `scale` (f32, > 0). Axes batch, head, rows (query rows), cols (key columns), d and dv.
/// Throws SpecError with every reason of check(spec).
Program attention_forward(const AttentionSpec& spec);

/// The size of the problem that a launch computes, as far as it is known. The kernels of a spec
/// compute problems of any size, but short sequences, and few of them, are faster with other
/// schedules than long ones.
struct AttentionProblem {
  std::int64_t batch = 0, heads = 0;  ///< of the queries
  std::int64_t q_len = 0,
               kv_len = 0;  ///< the longest sequence's, of packed ones the mean; 0: not known
};

/// From the least to the most.
struct LengthRange {
  std::int64_t least = 1, most = 1;
};

/// All problems whose numbers lie in these ranges.
struct AttentionProblems {
  LengthRange batch, heads, q_len, kv_len;
};

/// The shipped schedule for a spec and a target: the winner of a search (attention_winners.h), if
/// there is one; otherwise tile sizes that were measured for head_dim 64, 128 and 256, and that
/// follow from the same rules for other head dims.
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
