// The real generated kernel with one thing taken away: every wait, commit, barrier and bound in it
// has to be missed by the emulator, with the right name for what went wrong. So none is there for
// nothing, and none could be forgotten unseen. This is what such tests share.
#pragma once

#include <cstddef>
#include <ostream>
#include <regex>
#include <span>
#include <string>
#include <vector>

#include "codegen/kernel_source.h"
#include "dsl/schedule.h"
#include "templates/attention.h"
#include "tests/templates/support/outcome.h"

namespace flashcore {

/// head_dim 32, causal, with the log-sum-exp.
AttentionSpec small_spec();

/// Several tiles with ragged ends, a single ragged tile, and a block that sees no key at all.
inline const AttentionInputs few_tiles[] = {
    {.q_len = 75, .kv_len = 90}, {.q_len = 20, .kv_len = 5}, {.q_len = 37, .kv_len = 0}};

/// Every place in the body that matches.
std::vector<std::smatch> matches(const std::string& body, const std::regex& pattern);

KernelSource replaced(const KernelSource& source, const std::smatch& place,
                      const std::string& text);

/// Counted from 1.
int line_at(const std::string& body, std::ptrdiff_t position);

/// The kernel as it was generated.
void expect_right(const AttentionSpec& spec, const KernelSource& source,
                  std::span<const AttentionInputs> runs);

/// Replaces each match on its own; each kernel has to fail with one of the kinds. A pattern that
/// matches nothing tests nothing.
int expect_missed(const AttentionSpec& spec, const KernelSource& source, const std::string& pattern,
                  const std::string& replacement, const std::vector<FaultKind>& kinds,
                  std::span<const AttentionInputs> runs = few_tiles);

struct Variant {
  const char* name;
  int stages;
  void (*change)(Schedule&);
  /// The wait behind the loop is there for the query of a block that sees no key. Who has completed
  /// it before, or touches no shared memory behind the loop, could do without.
  bool last_wait_is_needed = true;
  bool stores_boxes = true;  ///< the copy engine takes the output away
  bool takes_turns = false;
  int shared_bytes = 0;  ///< shared memory of a block; 0: as much as the target has
};

void PrintTo(const Variant& variant, std::ostream* out);

}  // namespace flashcore
