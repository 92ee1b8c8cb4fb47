// Attention forward, written in the public language: the program of FlashAttention-2 and the
// schedules it ships with.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "dsl/flashcore.h"

namespace flashcore {

/// Tensors q, k, v, o, lse if the spec asks, and what its expressions capture; scalar `scale` (f32,
/// > 0). Axes batch, head, rows (query rows), cols (key columns), d and dv. Throws SpecError with
/// every reason of check(spec).
Program attention_forward(const AttentionSpec& spec);

/// How much a launch has to do, where that is known; a spec's kernels run any. Short sequences and
/// few of them want other schedules than long ones.
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

/// The schedule that ships for a spec and a target: what a search found (attention_winners.h), else
/// tile sizes chosen by measurement for head_dim 64, 128 and 256, by the same rules for the others.
Schedule attention_schedule(const AttentionSpec& spec, const Target& target,
                            const AttentionProblem& problem = {});

/// That schedule and then safer ones, which leave the compiler more registers. The large tiles use
/// all there are, and another version of the compiler may find one too few: build_first_fitting
/// takes the first of these whose code keeps its promises. Those that a mask's lookups leave too
/// few registers for are not among them.
std::vector<Schedule> attention_schedules(const AttentionSpec& spec, const Target& target,
                                          const AttentionProblem& problem = {});

/// Every list that attention_schedules returns for one of the problems, each once, and perhaps
/// some that it returns for none; first the one for a problem that is not known. `winners` is a
/// table that was measured besides (attention_winners.h), which goes before.
std::vector<std::vector<Schedule>> reachable_schedules(const AttentionSpec& spec,
                                                       const Target& target,
                                                       const AttentionProblems& problems,
                                                       std::string_view winners = {});

}  // namespace flashcore
