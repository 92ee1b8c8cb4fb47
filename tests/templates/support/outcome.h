// What becomes of a kernel that may be wrong.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>

#include "tests/templates/support/attention_run.h"

namespace flashcore {

/// The first complaint about the kernel, or nothing where every launch gives the right values.
struct Outcome {
  std::optional<FaultKind> fault;
  std::string words;
};

inline Outcome outcome_of(const AttentionSpec& spec, const KernelSource& source,
                          std::span<const AttentionInputs> runs) {
  for (const AttentionInputs& in : runs) {
    KernelRun run = attention_run(spec, in);
    try {
      (void)run.emulate(source);
    } catch (const EmulatorError& error) {
      return {error.kind(), error.what()};
    }
    if (std::string words = run.compare(); !words.empty()) return {{}, std::move(words)};
  }
  return {};
}

}  // namespace flashcore
