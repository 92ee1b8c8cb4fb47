// How the keys of sequences of different lengths are shared out over splits: every split has equally many
// keys of one sequence, the last one of each fewer, so that a long sequence has many. How many keys that
// are is decided on the GPU, where the lengths are known.
#pragma once

#include <vector>

#include "templates/choice/decode_splits.h"
#include "templates/decode_places.h"

namespace flashcore {

/// Inputs kv_lens, i32 [batch], and q_lens if the spec has them. Scalars, i32: most_rows and most_keys, the
/// most of a sequence; head_blocks, how many blocks share the number of a split, for heads and tiles of
/// rows; row_tiles, the last alone; block_slots, how many blocks the GPU holds at once; and splits, which
/// are more than sequences. Outputs, i32 [batch + 1]: first_split, the number of each sequence's first split,
/// and behind the last sequence how many splits there are, at most `splits`; and split_keys, how many keys
/// each split of a sequence has at the most, whole tiles. Of 32 lengths of splits, those that give no more
/// than `splits`, it takes the one that is predicted to take least with `costs`. Counts are exact up to 2^28 keys
/// a sequence.
Program attention_decode_plan(const DecodeSpec& spec, const SplitCosts& costs);

/// What the plan says of a split: its sequence and its keys. The blocks of a number that no sequence has
/// leave at once: `rows` then has none of its `row_count` positions.
struct PlannedSplit {
  Tile sequence;
  SplitShare share;
};
PlannedSplit load_planned_split(const AttentionTensors& tensors, Axis split, Axis rows,
                                const Tile& row_count);
/// The numbers of the splits that the block's own sequence has, from the first to behind the last.
struct SplitRange {
  Tile first, end;
};
SplitRange load_split_range(const AttentionTensors& tensors);

/// Declares `splits` and the scalars of attention_decode_plan as numbers of the module, for tiles of
/// `row_tile` rows.
void add_plan_numbers(ModuleBuilder& module, const DecodeSpec& spec, int row_tile,
                      const SplitCosts& costs);

/// The shipped schedules of attention_decode_plan.
std::vector<Schedule> attention_decode_plan_schedules(const Target& target);

}  // namespace flashcore
