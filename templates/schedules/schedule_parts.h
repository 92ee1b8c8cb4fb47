// What lists of shipped schedules share: what a target has room for, and the instructions that it has.
#pragma once

#include <algorithm>
#include <numeric>

#include "dsl/flashcore.h"
#include "dsl/ir/op.h"

namespace flashcore {

inline int round_up(int size, int step = 16) { return (size + step - 1) / step * step; }

/// The columns of a query or of a value, whichever has more.
inline int widest(const AttentionSpec& spec) { return std::max(spec.head_dim, spec.value_dim()); }

/// Whether the copy engine brings tiles of keys. Rows of other pages are copied by threads.
inline bool keys_lie_in_boxes(const AttentionSpec& spec) {
  return !spec.paged() || spec.page_size % ir::box_row_step == 0;
}

/// Whether a multiprocessor has room for so many blocks of so many bytes of shared memory.
inline bool fit_in_shared(const Target& target, int blocks, int bytes) {
  return bytes <= target.shared_per_block &&
         blocks * (bytes + target.shared_reserved) <= target.shared_per_processor;
}

/// mma.sync with asynchronous copies where the target has them; otherwise wmma, with the operations
/// between products on rows in shared memory, and copies by loads and stores.
inline void choose_family(Schedule& schedule, const Target& target) {
  if (!target.mma_m16n8k16) {
    schedule.instruction = Instruction::wmma;
    schedule.softmax = Softmax::shared;
  }
  if (!target.async_copy) schedule.copy = CopyInstruction::vector;
}

/// Products of warpgroups, which divide the rows, with the other fields of `s`.
inline Schedule warpgroup_tiles(int rows, int cols, Schedule s = {}) {
  s.instruction = Instruction::wgmma;
  s.copy = CopyInstruction::tma;
  s.tiles = {{"rows", rows}, {"cols", cols}};
  s.warps_m = rows / 16;
  return s;
}

/// Gives a block two producer warps where its warpgroups would wait for one: where a tile comes in many boxes of few keys,
/// each with a page that is looked up, or, for many rows, in boxes of many panels of columns. One thread issues a box
/// after the other. Several blocks of a multiprocessor issue theirs beside each other anyway.
inline void share_out_boxes(Schedule& s, const AttentionSpec& spec) {
  constexpr int few_keys = 16, few_columns = 128, few_rows = 64;
  if (!spec.paged() || s.copy != CopyInstruction::tma || !s.producer) return;
  const int cols = s.tiles.at("cols"), keys = std::gcd(spec.page_size, cols);
  const bool has_panels = widest(spec) > few_columns && s.tiles.at("rows") > few_rows;
  const bool has_boxes = keys <= few_keys && cols / keys >= (s.blocks_per_processor > 1 ? 8 : 4);
  if (has_panels || has_boxes) s.producer_warps = 2;
}

/// Whether the two warpgroups of a block multiply at the same time and compute at the same time, unless ping-pong keeps
/// them apart: where two warps issue loads, keys and values no longer come by turns. Measured from head_dim 80 on.
inline bool falls_into_step(const Schedule& s, const AttentionSpec& spec) {
  return s.producer_warps > 1 && s.tiles.at("rows") == 128 && round_up(widest(spec)) > 64;
}

}  // namespace flashcore
