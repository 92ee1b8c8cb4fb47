// Attention of query rows that are too few to fill a GPU over many keys, as in decoding and in chunks
// of a long prefill: the keys of a sequence are split over blocks, and a second program combines
// what these have found. Where rows are few, the query heads of a group are rows of one tile beside
// the query rows, so that keys and values are read once for all of them.
// Two programs, to be launched in this order, behind a third one where sequences differ in length. Where
// some sequences of a batch have few query rows and others many, attention_forward_of_long has these.
//
//   attention_decode_plan     which keys of which sequence each split has
//   attention_decode_split    the weighted values of one split of the keys, for every row
//   attention_decode_combine  their sums over the splits
#pragma once

#include <vector>

#include "dsl/flashcore.h"
#include "templates/choice/cost_coefficients.h"

namespace flashcore {

/// Which query rows a block of the split program computes together.
enum class DecodeRows {
  packed,               ///< those of all heads of a group, which so read their keys once
  packed_in_registers,  ///< the same as an operand in registers: keys may come by the copy engine
  of_head,              ///< those of one head, for rows that fill tiles by themselves
};

struct DecodeSpec {
  AttentionSpec attention;  ///< of dtype bf16 or f16
  DecodeRows rows = DecodeRows::packed;
  /// A block of the second program has a tile of query rows, and at most most_combined_splits of
  /// each: for many rows, which have few splits, and packed sequences. Otherwise it has one row, and
  /// any number of them.
  bool combines_tiles = false;
  /// Sequences with more keys have more splits, and attention_decode_plan computes how many. The rows are
  /// packed, and sequences have lengths of their own: kv_lens, or those of layout thd.
  bool balances = false;
  /// Packed sequences with more than most_rows query rows, an i32 scalar, have no splits: nothing of them is
  /// stored. With `balances`.
  bool skips_long = false;

  [[nodiscard]] bool packs_heads() const { return rows != DecodeRows::of_head; }
};

/// Inputs q, k, v, kv_lens and q_lens if the spec has them, cu_seqlens_q and cu_seqlens_k of packed
/// sequences, page_table, and what the expressions capture; scalar `scale`, and of packed sequences
/// max_q_len, or most_packed_rows, which is that times the heads of a group. Outputs, f32: partial
/// [batch, heads, splits, q_len, dim], the sums of values weighted by 2^(score - maximum), scores in base-2
/// units, and partial_max and partial_sum [batch, heads, splits, q_len], the maximum and the sum of the
/// weights; of packed sequences without batch. The length `splits` is the caller's choice
/// (decode_splits). Each split has equally many keys, a multiple of keys_of_splits; those behind the last key
/// have none, a sum of 0 and zeros.
///
/// Where splits are balanced partials have no batch either, and of packed sequences the rows of one alone,
/// most_rows: the splits of one sequence follow those of the other. Of a sequence with one split nothing is
/// partial: o is stored here, and lse if the spec asks for it. Inputs besides: first_split and split_keys,
/// which attention_decode_plan makes (decode_plan.h).
Program attention_decode_split(const DecodeSpec& spec);

/// Inputs partial, partial_max, partial_sum, q_lens if the spec has it, first_split where it balances,
/// and then of packed sequences cu_seqlens_q.
/// Outputs o, and lse if the spec asks for it. A row that sees no key gives zeros and, without a sink, an
/// lse of -inf.
Program attention_decode_combine(const DecodeSpec& spec);

/// A split has a multiple of so many keys: whole tiles of every shipped schedule.
constexpr int keys_of_splits = 128;

/// More of packed sequences with few rows, of which tiles are mostly empty.
inline int most_combined_splits(const AttentionSpec& spec, DecodeRows rows) {
  return spec.packed() && rows == DecodeRows::packed ? 8 : 4;
}

/// The shipped schedules of each: the best first, then smaller ones. Those of the split program have
/// tiles of `row_tile` rows, the last ones perhaps fewer.
std::vector<Schedule> attention_decode_split_schedules(const DecodeSpec& spec, const Target& target,
                                                       int row_tile = 16);
std::vector<Schedule> attention_decode_combine_schedules(const DecodeSpec& spec,
                                                         const Target& target);

/// All in one launch, which computes the number of splits: arguments q, k, v, o, lse if the spec asks
/// for it, page_table with pages, lengths, and what the expressions capture. `row_tile` is that of
/// the split program's schedule; `model` has what their number goes by. With `skips_long` the last kernel is
/// attention_forward_of_long, and most_rows such that the rows of all heads of a group fit in a tile.
Module attention_decode(const DecodeSpec& spec, int row_tile,
                        const CostModel& model = CostModel::first());

/// Rows of the largest tile of packed rows that are copied to shared memory.
constexpr int most_decode_rows = 64;
/// Whether calls of a spec with few query rows are computed by this module: not those of f32, of very
/// wide heads, and of groups of more heads than a tile has rows.
bool can_decode(const AttentionSpec& spec, const Target& target);

}  // namespace flashcore
