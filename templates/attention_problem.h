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
AttentionProblem as_fixed_by(const AttentionSpec& spec, const AttentionProblem& problem);
AttentionProblems as_fixed_by(const AttentionSpec& spec, const AttentionProblems& problems);

}  // namespace flashcore
