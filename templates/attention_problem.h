// The sizes of the problems that launches of an attention kernel compute.
#pragma once

#include <cstdint>

#include "dsl/flashcore.h"

namespace flashcore {

/// The size of the problem that a launch computes, as far as it is known. The kernels of a spec
/// compute problems of any size, but short sequences, and few of them, are faster with other
/// schedules than long ones.
struct AttentionProblem {
  std::int64_t batch = 0, heads = 0;  ///< of the queries
  std::int64_t q_len = 0,
               kv_len = 0;  ///< the longest sequence's, of packed ones the mean; 0: not known
  std::int64_t longest_q_len = 0;  ///< of packed sequences; 0: not known
};

/// From the least to the most.
struct LengthRange {
  std::int64_t least = 1, most = 1;

  [[nodiscard]] bool holds(std::int64_t length) const { return least <= length && length <= most; }
};

/// All problems whose numbers lie in these ranges.
struct AttentionProblems {
  LengthRange batch, heads, q_len, kv_len;
};

/// Lengths, batch and heads that a spec fixes are the same in every call.
inline AttentionProblem as_fixed_by(const AttentionSpec& spec, const AttentionProblem& problem) {
  return {.batch = spec.batch.value_or(problem.batch),
          .heads = spec.heads ? spec.heads : problem.heads,
          .q_len = spec.q_len.value_or(problem.q_len),
          .kv_len = spec.kv_len.value_or(problem.kv_len),
          .longest_q_len = problem.longest_q_len};
}
inline AttentionProblems as_fixed_by(const AttentionSpec& spec, const AttentionProblems& problems) {
  const AttentionProblem fixed = as_fixed_by(spec, AttentionProblem{});
  const auto either = [](std::int64_t number, const LengthRange& range) {
    return number > 0 ? LengthRange{number, number} : range;
  };
  return {.batch = either(fixed.batch, problems.batch),
          .heads = either(fixed.heads, problems.heads),
          .q_len = either(fixed.q_len, problems.q_len),
          .kv_len = either(fixed.kv_len, problems.kv_len)};
}

}  // namespace flashcore
