// How the keys of sequences of different lengths are shared out over splits: every split has equally many
// keys of one sequence, the last one of each fewer, so that a long sequence has many. How many keys that
// are is decided on the GPU, where the lengths are known.
#pragma once

#include <vector>

#include "templates/choice/decode_splits.h"
#include "templates/decode_places.h"

namespace flashcore {

/// Inputs: what says how long sequences are, kv_lens and q_lens, i32 [batch], or cu_seqlens_q and
/// cu_seqlens_k, i32 [batch + 1]. Scalars, i32: most_rows, of packed sequences max_q_len, and most_keys, the
/// most of a sequence; where the spec skips long sequences most_rows besides, the most of one that has splits;
/// head_blocks, how many blocks share the number of a split, for heads and tiles of
/// rows; row_tiles, the last alone; block_slots, how many blocks the GPU holds at once; and splits, which
/// are more than sequences. Outputs, i32 [batch + 1]: first_split, the number of each sequence's first split,
/// and behind the last sequence how many splits there are, at most `splits`; and split_keys, how many keys
/// each split of a sequence has at the most, whole tiles. Where the spec skips long sequences also
/// long_in_front, how many of the sequences in front are long; and for each of these, in their order, its
/// number, long_sequences, and its first row, long_starts; behind them long_starts has the end of all sequences.
/// Of 32 lengths of splits, those that give no more
/// than `splits`, it takes the one that is predicted to take least with `costs`. Counts are exact up to
/// 2^28 keys a sequence.
Program attention_decode_plan(const DecodeSpec& spec, const SplitCosts& costs);

/// Which sequence a split belongs to; of a number that no sequence has, the first one.
struct SplitOwner {
  Tile sequence, exists;
};

/// The plan, in a program that reads it. Declares what it reads.
class SplitPlan {
 public:
  explicit SplitPlan(const AttentionTensors& tensors);

  [[nodiscard]] SplitOwner find_owner(Axis split) const;
  /// The keys of a split of the block's own sequence.
  [[nodiscard]] SplitShare load_share(Axis split) const;
  /// Places an axis in the splits of the block's own sequence.
  void place_splits(Axis splits) const;
  /// How many splits the block's own sequence has.
  [[nodiscard]] Tile count_splits() const;

 private:
  [[nodiscard]] Tensor declare(const char* name) const;

  const AttentionTensors& t_;
  Tensor first_split_;
};

/// Has each block of a program compute tiles of one of the long sequences. Declares what it reads.
void place_in_long_sequences(AttentionTensors& tensors);

/// Declares `splits` and the scalars of attention_decode_plan as numbers of the module, for tiles of
/// `row_tile` rows.
void add_plan_numbers(ModuleBuilder& module, const DecodeSpec& spec, int row_tile,
                      const SplitCosts& costs);

/// The shipped schedules of attention_decode_plan.
std::vector<Schedule> attention_decode_plan_schedules(const Target& target);

}  // namespace flashcore
