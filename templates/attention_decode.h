// Attention of query rows that are too few to fill a GPU over many keys, as in decoding and in chunks
// of a long prefill: the keys of a sequence are split over blocks, and a second program combines
// what these have found. Where rows are few, the query heads of a group are rows of one tile beside
// the query rows, so that keys and values are read once for all of them.
// Two programs, to be launched in this order.
//
//   attention_decode_split    the weighted values of one split of the keys, for every row
//   attention_decode_combine  their sums over the splits
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dsl/flashcore.h"

namespace flashcore {

/// Which query rows a block of the split program computes together.
enum class DecodeRows {
  packed,               ///< those of all heads of a group, which so read their keys once
  packed_in_registers,  ///< the same as an operand in registers: keys may come by the copy engine
  of_head,              ///< those of one head, for rows that fill tiles by themselves
};

struct DecodeSpec {
  AttentionSpec attention;  ///< of layout bhsd or bshd, and dtype bf16 or f16
  /// Keys of a page; 0: keys are contiguous. With pages k and v are [pages, page_size, kv_heads,
  /// dim], and page_table, i32 [batch, max_pages], names the pages of each sequence in order. The
  /// spec then has kv_lens: what the table says beyond a sequence's end is not read.
  int page_size = 0;
  DecodeRows rows = DecodeRows::packed;

  [[nodiscard]] bool packs_heads() const { return rows != DecodeRows::of_head; }
};

/// Inputs q, k, v, kv_lens and q_lens if the spec has them, page_table, and what the expressions
/// capture; scalar `scale`. Outputs, f32: partial [batch, heads, splits, q_len, dim], the sums of
/// values weighted by 2^(score - maximum), scores in base-2 units, and partial_max and partial_sum
/// [batch, heads, splits, q_len], the maximum and the sum of the weights. The length `splits` is
/// the caller's choice (decode_splits). Each split has equally many keys, a multiple of
/// keys_of_splits; those behind the last key have none, a sum of 0 and zeros.
Program attention_decode_split(const DecodeSpec& spec);

/// Inputs partial, partial_max, partial_sum, and q_lens if the spec has it. Outputs o, and lse if
/// the spec asks for it. A row that sees no key gives zeros and, without a sink, an lse of -inf.
Program attention_decode_combine(const DecodeSpec& spec);

/// A split has a multiple of so many keys: whole tiles of every shipped schedule.
constexpr int keys_of_splits = 128;

/// The shipped schedules of each: the best first, then smaller ones. `q_len` is the number of query
/// rows, of which those of a group's heads should fit in one tile; 0: one.
std::vector<Schedule> attention_decode_split_schedules(const DecodeSpec& spec, const Target& target,
                                                       int q_len = 0);
std::vector<Schedule> attention_decode_combine_schedules(const DecodeSpec& spec,
                                                         const Target& target);

/// What decides how many splits are best.
struct DecodeProblem {
  std::int64_t batch = 1, kv_heads = 1;
  std::int64_t row_tiles = 1;  ///< tiles of group * q_len rows
  std::int64_t keys = 0;       ///< of the longest sequence
  std::int64_t multiprocessors = 1;
  bool paged = false;
};

/// The number of splits for which the last multiprocessor ends first: that with the least product
/// of blocks of a multiprocessor and keys of a block, where every block costs as much as some keys
/// more, and every split as much as one in combining. How many blocks a multiprocessor holds at a
/// time is of no account, since they share its bandwidth; but where keys come through pages, a
/// block alone does not use all of that.
std::int64_t decode_splits(const DecodeProblem& problem);

/// The same as an expression of named extents and `multiprocessors`, for Module::number: what the
/// split program leaves open is called B, H, Sq and Sk, and max_pages with pages. `row_tile` is the
/// schedule's tile of rows.
std::string decode_splits_text(const DecodeSpec& spec, int row_tile);

/// Fewer keys are never split: one block reads them as fast.
constexpr std::int64_t least_keys_split = 512;

/// Whether a call is faster with its keys split than as one block for each head and tile of query
/// rows: by the keys that the busiest multiprocessor reads in either way, of which a few query rows
/// cost nothing, more rows cost products of mma.sync, and the second program as much as some keys.
bool splitting_pays(std::int64_t batch, std::int64_t heads, std::int64_t kv_heads,
                    std::int64_t q_len, std::int64_t kv_len, std::int64_t multiprocessors);

/// Both in one launch, which computes the number of splits: arguments q, k, v, o, lse if the spec asks
/// for it, page_table with pages, lengths, and what the expressions capture. `row_tile` is that of
/// the split program's schedule.
Module attention_decode(const DecodeSpec& spec, int row_tile);

/// Rows of the largest tile that schedules have: query rows times the heads of a group.
constexpr int most_decode_rows = 64;
/// Whether calls of a spec with few query rows are computed by this module: not those of packed
/// sequences, of f32, of very wide heads, and of groups of more heads than a tile has rows.
bool can_decode(const AttentionSpec& spec, const Target& target);

}  // namespace flashcore
