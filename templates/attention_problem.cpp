#include "templates/attention_problem.h"

namespace flashcore {

AttentionProblem as_fixed_by(const AttentionSpec& spec, const AttentionProblem& problem) {
  return {.batch = spec.batch.value_or(problem.batch),
          .heads = spec.heads ? spec.heads : problem.heads,
          .q_len = spec.q_len.value_or(problem.q_len),
          .kv_len = spec.kv_len.value_or(problem.kv_len)};
}

AttentionProblems as_fixed_by(const AttentionSpec& spec, const AttentionProblems& problems) {
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
