// Attention backward, written in the public language: the gradients of q, k and v, without the
// scores ever being stored. Programs to be launched in this order:
//
//   attention_backward_rows     delta, the row sums of dO * O, and the log-sum-exps in base 2
//   attention_backward_keys     dK and dV of a tile of keys, in a loop over query rows
//   attention_backward_values   dV alone, where both are more than a block's registers
//   attention_backward_queries  dQ of a tile of query rows, in a loop over keys
//   attention_backward_groups   sums over the query heads of a group, where the spec has groups
//
// The scores are computed twice, so seven products do the work of five, or eight where dV is apart;
// in return no block adds to what another block has written: nothing is atomic, and every launch
// gives the same bits.
//
// By five products, each block of keys adds its shares of dQ to sums in f32, which no program has to
// compute the scores again for. The order of additions is that of the blocks' work, so that dQ may be
// rounded otherwise in another launch: for specs that are not deterministic.
//
//   attention_backward_adding_rows     delta, the log-sum-exps in base 2, and dq_sums, which starts as zeros
//   attention_backward_adding_keys     dK and dV of a tile of keys, in a loop over query rows, whose
//                                      dQ it adds
//   attention_backward_adding_queries  dQ, the scaled sums in the spec's dtype
//   attention_backward_groups          where the spec has groups
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "dsl/flashcore.h"

namespace flashcore {

/// Inputs o, dout (the gradient of o) and lse (as attention_forward stores it); outputs delta and
/// lse_log2, f32, of the shape of lse; of packed sequences [heads, aligned_rows], where sequence i
/// begins at 4 (begin / 4 + i). A row that saw no key has an lse of -inf; its lse_log2 is +inf, which
/// makes all its weights 0.
Program attention_backward_rows(const AttentionSpec& spec);

/// Inputs q, k, v, dout, delta, lse_log2 and what the mask captures; scalar `scale`. Outputs dk and
/// dv, like k and v. Where the spec has groups they are dk_heads and dv_heads instead: f32, with as
/// many heads as q. Packed sequences have the i32 scalar max_kv_len, the length of the longest one.
Program attention_backward_keys(const AttentionSpec& spec);

/// Whether dV has a program of its own, and attention_backward_keys computes dK alone: beyond a
/// head_dim of 128.
bool backward_apart(const AttentionSpec& spec);

/// Inputs q, k, dout, lse_log2 and what the mask captures; scalar `scale`. Output dv, or dv_heads.
/// Refused for a spec whose dV is not apart.
Program attention_backward_values(const AttentionSpec& spec);

/// The same inputs as attention_backward_keys, with max_q_len for packed sequences. Output dq, like q.
Program attention_backward_queries(const AttentionSpec& spec);

/// Inputs dk_heads and dv_heads, outputs dk and dv. Refused for a spec without groups.
Program attention_backward_groups(const AttentionSpec& spec);

/// All of them in one launch: arguments q, k, v, o, lse, dout, dq, dk, dv and what the mask captures;
/// delta, lse_log2, dk_heads and dv_heads are workspaces. Throws SpecError for what has no
/// derivative.
Module attention_backward(const AttentionSpec& spec);

/// What attention_backward_rows takes and makes, and the output dq_sums: f32, of the shape of q.
Program attention_backward_adding_rows(const AttentionSpec& spec);

/// What attention_backward_keys takes and makes, and dq_sums, which it adds to. Refused beyond a
/// head_dim of 128, where dK and dV are more than a block's registers.
Program attention_backward_adding_keys(const AttentionSpec& spec);

/// Input dq_sums, scalar `scale`; output dq, like q.
Program attention_backward_adding_queries(const AttentionSpec& spec);

/// Those in one launch, with the arguments of attention_backward; dq_sums is one more workspace.
Module attention_backward_adding(const AttentionSpec& spec);

/// No sequence is longer: the schedules for this length are those that are fast however long sequences are.
inline constexpr int any_length = std::numeric_limits<int>::max();

/// The shipped schedules of the program of this name: the best first, then safer ones, which leave the
/// compiler more registers (see attention_schedules). `length`: how many rows or keys, whichever are more,
/// a sequence has in the mean.
std::vector<Schedule> attention_backward_schedules(std::string_view program,
                                                   const AttentionSpec& spec, const Target& target,
                                                   std::int64_t length = any_length);

/// From how many rows and keys on five products are faster than seven.
struct AddingLengths {
  std::int64_t longer = 0;  ///< rows or keys, whichever are more, as of a schedule's length
  std::int64_t keys = 0;
};

/// Empty where seven products are faster at any length, and for a spec that is deterministic. They are
/// lengths for the first schedule of each program of attention_backward_adding; where the compiler
/// refuses one of those, seven products are faster.
std::optional<AddingLengths> adding_lengths(const AttentionSpec& spec, const Target& target);

/// The lengths up to which there are schedules that are not for longer sequences, and any_length, in
/// ascending order: all lengths between two of them have the same schedules.
std::vector<std::int64_t> backward_length_bounds();

}  // namespace flashcore
