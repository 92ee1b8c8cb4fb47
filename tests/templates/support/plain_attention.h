// Attention as one writes it down, in double precision and with whole rows of scores: what the
// reference is held against, so that they do not share a mistake.
#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "dsl/attention_spec.h"
#include "runtime/reference/reference.h"
#include "tests/support/kernel_run.h"
#include "tests/templates/support/random_expression.h"

namespace flashcore {

struct PlainAttention {
  std::function<bool(const Site&)> visible = [](const Site&) { return true; };
  std::function<double(const Site&)> score = [](const Site& site) { return site.score; };
  std::function<double(const Site&)> sink = [](const Site&) { return -INFINITY; };

  /// Differences between these outputs (o, then lse if the spec has it) and what is computed here
  /// of the inputs of `run`; empty if there are none beyond what double precision loses.
  [[nodiscard]] std::string compare(const AttentionSpec& spec, const KernelRun& run, double scale,
                                    const std::vector<ReferenceOutput>& outputs) const;
};

}  // namespace flashcore
