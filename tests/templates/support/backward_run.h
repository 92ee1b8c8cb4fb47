// The backward programs of attention, one launch after the other, on the emulator.
#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "dsl/attention_spec.h"
#include "dsl/target.h"
#include "tests/templates/support/random_expression.h"

namespace flashcore {

/// The lengths of one problem and what fills its inputs.
struct BackwardProblem {
  int batch = 1, heads = 1, kv_heads = 1, q_len = 1, kv_len = 1;
  int row_gap = 0;    ///< elements that lie unused behind every row, a multiple of 8
  double spread = 1;  ///< standard deviation of the elements of q
  /// The sequences' own lengths, of packed and padded batches.
  std::vector<int> q_lens = {}, kv_lens = {};
  std::function<double(const Site&)> sink = [](const Site&) { return -INFINITY; };
  std::vector<CapturedValues> captured = {};
  /// By the programs of attention_backward_adding.
  bool adding = false;
};

/// Runs all programs of a spec under the first of their schedules that the target can run, or under
/// all of those, each with the others' first. Differences between what an output is and what the
/// reference says, and between the gradients and their definition; empty if there are none.
std::string compare_backward(const AttentionSpec& spec, const Target& target,
                             const std::function<bool(const Site&)>& visible,
                             const BackwardProblem& problem, bool all_schedules);

}  // namespace flashcore
