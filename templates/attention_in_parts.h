// Attention of f32 tensors in full accuracy on wgmma. A tile of keys that many blocks of query rows
// read would be split in its parts by every one of them, and a warpgroup multiplies no tile that
// its own threads have made. So programs in front split q, k and v once, and the attention reads
// bf16 tensors alone, which the copy engine brings:
//
//   split_q, split_k, split_v    the bf16 parts of each
//   attention_forward_in_parts   o and lse, from these
#pragma once

#include <string>
#include <vector>

#include "dsl/flashcore.h"

namespace flashcore {

/// Whether a spec's products are split, and the target has wgmma.
bool can_attend_in_parts(const AttentionSpec& spec, const Target& target);

/// Where fewer query rows read a head of keys, or read fewer keys, it may take less to split them where they
/// are read (attention_forward).
inline constexpr int least_rows_in_parts = 256, least_keys_in_parts = 128;

/// Input q, k or v, as `name` says; outputs its parts (split_products.h), each of its shape.
/// Where values come in halves, v has six of them.
Program split_operand(const AttentionSpec& spec, const std::string& name);

/// As attention_forward, but for the inputs: the parts of q, k and v.
Program attention_forward_in_parts(const AttentionSpec& spec);

/// Whether the output of 64 rows and what a tile adds to it are too much for a warpgroup's
/// registers. Columns of values, and of the output, then come in two halves, a multiple of 8 wide.
bool halves_values(const AttentionSpec& spec);
/// Columns of a half, or of all.
int value_columns(const AttentionSpec& spec);
/// What the tensors of both are called, or those of all, without the names of their parts.
std::vector<std::string> names_of_values(const AttentionSpec& spec);

/// All of them in one launch: the arguments of attention_forward; the parts are workspaces.
Module attention_in_parts(const AttentionSpec& spec);
/// The schedules of each of its kernels: the best first, then such as leave the compiler more
/// registers.
std::vector<std::vector<Schedule>> attention_in_parts_schedules(const AttentionSpec& spec,
                                                                const Target& target);

}  // namespace flashcore
