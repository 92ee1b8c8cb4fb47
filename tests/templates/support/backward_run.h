// The backward programs of attention, one launch after the other, on the emulator.
#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "dsl/attention_spec.h"
#include "dsl/target.h"
#include "tests/support/program_kernels.h"
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
};

/// All programs of a spec under the first of their schedules for sequences of each length that the target
/// can run, or under all of those; with `adding` those of attention_backward_adding.
std::vector<ProgramKernels> backward_kernels(const AttentionSpec& spec, const Target& target,
                                             bool adding, bool all_schedules);

/// Runs them, each program's last kernel in front of the programs behind it. Differences between what
/// an output is and what the reference says, and between the gradients and their definition; empty if
/// there are none.
std::string compare_backward(const std::vector<ProgramKernels>& programs, const AttentionSpec& spec,
                             const std::function<bool(const Site&)>& visible,
                             const BackwardProblem& problem);

}  // namespace flashcore
