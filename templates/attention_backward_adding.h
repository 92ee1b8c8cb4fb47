// Attention backward by five products: each block of keys adds its shares of dQ to sums in f32, which
// no program has to compute the scores again for. Not what ships (attention_backward.h): the order of
// additions is that of the blocks' work, so that dQ may be rounded otherwise in another launch.
// Programs to be launched behind attention_backward_rows, in this order:
//
//   attention_backward_adding_zeros    dq_sums, which starts as zeros
//   attention_backward_adding_keys     dK and dV of a tile of keys, in a loop over query rows, whose
//                                      dQ it adds
//   attention_backward_adding_queries  dQ, the scaled sums in the spec's dtype
//   attention_backward_groups          where the spec has groups
#pragma once

#include "dsl/flashcore.h"

namespace flashcore {

/// Output dq_sums: f32, of the shape of q.
Program attention_backward_adding_zeros(const AttentionSpec& spec);

/// What attention_backward_keys takes and makes, and dq_sums, which it adds to. Refused beyond a
/// head_dim of 128, where dK and dV are more than a block's registers.
Program attention_backward_adding_keys(const AttentionSpec& spec);

/// Input dq_sums, scalar `scale`; output dq, like q.
Program attention_backward_adding_queries(const AttentionSpec& spec);

/// All of them in one launch, with the arguments of attention_backward; dq_sums is one more
/// workspace.
Module attention_backward_adding(const AttentionSpec& spec);

}  // namespace flashcore
