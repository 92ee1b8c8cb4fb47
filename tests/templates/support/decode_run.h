// The decoding programs of attention, one launch after the other, on the emulator.
#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "dsl/target.h"
#include "templates/attention_decode.h"
#include "tests/support/program_kernels.h"
#include "tests/templates/support/random_expression.h"

namespace flashcore {

/// The lengths of one problem and what fills its inputs.
struct DecodeRun {
  int batch = 1, heads = 1, kv_heads = 1, q_len = 1, kv_len = 1, splits = 1;
  double spread = 1;  ///< standard deviation of the elements of q
  /// The sequences' own lengths. What lies beyond is NaN, and pages beyond have no valid number.
  std::vector<int> q_lens = {}, kv_lens = {};
  std::function<bool(const Site&)> visible = [](const Site&) { return true; };
  std::function<double(const Site&)> score = [](const Site& site) { return site.score; };
  std::function<double(const Site&)> sink = [](const Site&) { return -INFINITY; };
  std::vector<CapturedValues> captured = {};
};

/// The programs in the order of their launch under the first of their schedules that the target can run, or
/// under all of those;
/// schedules are those of a problem with so many query rows.
std::vector<ProgramKernels> decode_kernels(const DecodeSpec& spec, const Target& target, int q_len,
                                           bool all_schedules = false);

/// Runs them, one of each program after the other until all have run. Differences between what each
/// stores and what the reference says, and between the output and its definition; empty if there are
/// none.
std::string compare_decode(const std::vector<ProgramKernels>& programs, const DecodeSpec& spec,
                           const DecodeRun& problem);

}  // namespace flashcore
