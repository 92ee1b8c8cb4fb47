// Schedules that ship for attention_forward: on wgmma, on mma.sync, and on opaque blocks where
// there is neither. docs/performance.md says what was measured and what was tried besides.
#include <algorithm>
#include <utility>

#include "templates/schedule_chooser.h"
#include "templates/schedules/schedule_lists.h"
#include "templates/schedules/schedule_parts.h"

namespace flashcore {
namespace {

/// The kernel that was measured: everything read off the tensors, every sequence as long as they
/// are.
bool all_lengths_open(const AttentionSpec& spec) {
  return !spec.heads && !spec.batch && !spec.q_len && !spec.kv_len && !spec.packed() &&
         !spec.q_lens && !spec.kv_lens && !spec.paged();
}

/// Bytes of shared memory for opaque blocks with one tile of keys and values: every row is 8
/// elements longer than its tile, and scores, probabilities and the product with the values take
/// turns in one place.
int block_bytes(const AttentionSpec& spec, int rows, int cols) {
  const int d = round_up(spec.head_dim) + 8, dv = (spec.value_dim() + 31) / 32 * 32 + 8;
  constexpr int rounding = 6 * 1024;
  return 2 * (rows * d + cols * (d + dv)) + 4 * rows * std::max(cols + 8, dv) + rounding;
}

/// Opaque blocks. The largest tile that fits: 8 rows a warp or more, so that no warp repeats
/// another's softmax. Nobody has measured these; they are chosen for 64 KiB a multiprocessor.
Schedule block_schedule(const AttentionSpec& spec, const Target& target) {
  Schedule s;
  choose_family(s, target);
  s.stages = 1;
  s.last_tiles_first = !spec.mask.is_full();
  struct Tile {
    int rows, cols;
  };
  for (const Tile tile : {Tile{64, 64}, {64, 32}, {32, 64}, {32, 32}, {16, 32}}) {
    s.tiles = {{"rows", tile.rows}, {"cols", tile.cols}};
    s.warps_m = tile.rows / 16;
    s.warps_n = 2;
    if (block_bytes(spec, tile.rows, tile.cols) <= target.shared_per_block) break;
  }
  return s;
}

/// Products of one warp each.
Schedule warp_schedule(const AttentionSpec& spec, const Target& target) {
  const int dim = widest(spec);
  const bool masked = !spec.mask.is_full();
  // Data centre parts have 160 KiB a multiprocessor and more, workstation parts 100.
  const bool roomy = target.shared_per_block >= 160 * 1024;
  // The largest tiles leave no register free. They were measured, and do not spill, on sm_90.
  const bool measured = target.capability == 90;
  // One block of 128 rows with two tiles of 64 keys in flight.
  const int large_block = (128 + 2 * 2 * 64) * round_up(dim) * size_of(spec.dtype);
  // What an expression computes of a score needs registers: an ascending loop keeps a few fewer.
  // With what it looks up for every key, or even for every score, tiles have to be smaller.
  const bool computes =
      !spec.sink.text.empty() || (!spec.score.text.empty() && !spec.score.looks_up());
  const bool needs_room = spec.mask.looks_up() || !spec.score.text.empty();
  const bool by_score = std::any_of(spec.score.tensors.begin(), spec.score.tensors.end(),
                                    [](const Captured& tensor) { return tensor.rank > 1; });
  Schedule s;
  s.last_tiles_first = masked;
  s.descending = !computes;
  if (dim <= 128) {
    // Four warps of 32 rows: every fragment of K and V read from shared memory serves two blocks of
    // 16 rows. Two thread blocks a multiprocessor hide each other's softmax.
    s.warps_m = 4;
    s.blocks_per_processor = 2;
    s.tiles["rows"] = 128;
    s.tiles["cols"] =
        dim <= 64 ? (measured && needs_room ? 64 : 96) : (measured && !by_score ? 64 : 32);
    s.stages = dim <= 64 && roomy ? 2 : 1;
    if (measured && dim <= 64 && !masked && !all_lengths_open(spec)) {
      // With lengths or heads compiled in, the compiler arranges its addresses otherwise and finds
      // two registers too few for tiles of 96 keys. With 64, the query fits in registers instead,
      // which is second best by 4 %.
      s.tiles["cols"] = 64;
      s.keep_operands = true;
    }
    // The longest rows of all heads first: worth 6 % at head_dim 128.
    if (masked && dim > 64) s.grid_order = GridOrder::tiles_last;
  } else if (!masked && large_block <= target.shared_per_block) {
    // The output of 32 rows no longer fits in a warp's registers. Eight warps of 16 rows share K
    // and V.
    s.warps_m = 8;
    s.tiles["rows"] = 128;
    s.tiles["cols"] = 64;
    s.stages = 2;
  } else {
    // Two small blocks balance the rows of a mask better than a large one.
    s.warps_m = 4;
    s.tiles["rows"] = 64;
    s.tiles["cols"] = 64;
    s.stages = 1;
    s.peel_masks = measured;
  }
  return s;
}

/// On products of one warp each, or opaque blocks: the best, then fewer keys a tile.
std::vector<Schedule> schedules_of_warps(const AttentionSpec& spec, const Target& target) {
  if (is_wide(spec) && target.mma_m16n8k16) return wide_schedules(spec, target);
  std::vector<Schedule> schedules{target.mma_m16n8k16 ? warp_schedule(spec, target)
                                                      : block_schedule(spec, target)};
  for (int cols : {64, 32}) {
    Schedule smaller = schedules.front();
    if (smaller.tiles["cols"] <= cols) continue;
    smaller.tiles["cols"] = cols;
    schedules.push_back(std::move(smaller));
  }
  if (target.mma_m16n8k16) {
    // Sixteen rows a warp and few keys: slow, but whatever an expression asks for fits.
    Schedule smallest = schedules.front();
    smallest.tiles = {{"rows", 64}, {"cols", widest(spec) <= 128 ? 32 : 16}};
    smallest.warps_m = 4;
    smallest.stages = 1;
    smallest.keep_operands = smallest.peel_masks = false;
    smallest.blocks_per_processor = 1;
    if (!(smallest == schedules.back())) schedules.push_back(std::move(smallest));
  }
  return schedules;
}

/// The schedule, then every block on its own, fewer keys a tile, one block a multiprocessor with
/// small tiles, and no warpgroups at all.
std::vector<Schedule> with_safer(const Schedule& schedule, const AttentionSpec& spec,
                                 const Target& target) {
  std::vector<Schedule> schedules{schedule};
  Schedule alone = schedule;
  if (alone.cluster_splits > 1) {
    alone.cluster_splits = alone.blocks_per_processor = 1;
    schedules.push_back(alone);
  }
  if (alone.positions_per_block > 1) {
    alone.positions_per_block = alone.outer_stages = 1;
    schedules.push_back(alone);
  }
  for (const int fewer : {16, 32}) {
    Schedule fewer_keys = alone;
    fewer_keys.tiles["cols"] = std::max(16, fewer_keys.tiles["cols"] - fewer);
    schedules.push_back(std::move(fewer_keys));
  }
  if (!is_wide(spec)) {
    Schedule smaller = alone;
    smaller.tiles["rows"] = 128;
    smaller.tiles["cols"] = std::min(64, smaller.tiles["cols"]);
    smaller.warps_m = 8;
    smaller.producer = true;
    smaller.blocks_per_processor = 1;
    smaller.persistent = smaller.ping_pong = false;
    smaller.multicast_blocks = 1;
    smaller.outer_stages = 1;
    smaller.staged_stores = true;
    smaller.grid_order = GridOrder::tiles_first;
    smaller.tile_scheduler = PersistentScheduler::serpentine;
    schedules.push_back(std::move(smaller));
  }
  Target older = target;
  older.wgmma = older.tma = false;
  for (Schedule& other : schedules_of_warps(spec, older)) schedules.push_back(std::move(other));
  return schedules;
}

}  // namespace

std::vector<std::vector<Schedule>> schedule_lists(const SpecTraits& traits, const Target& target) {
  const AttentionSpec& spec = traits.spec;
  std::vector<std::vector<Schedule>> lists;
  if (target.wgmma && spec.dtype != DType::f32 && keys_lie_in_boxes(spec))
    for (const Schedule& candidate : hopper_candidates(traits))
      lists.push_back(with_safer(candidate, spec, target));
  if (lists.empty())
    lists.push_back(spec.splits_products()     ? split_schedules(spec, target)
                    : spec.dtype == DType::f32 ? float_schedules(spec, target)
                                               : schedules_of_warps(spec, target));
  leave_out_crowded(lists, spec, target);
  return lists;
}

Schedule attention_schedule(const AttentionSpec& spec, const Target& target,
                            const AttentionProblem& problem) {
  return attention_schedules(spec, target, problem).front();
}

std::vector<Schedule> attention_schedules(const AttentionSpec& spec, const Target& target,
                                          const AttentionProblem& problem) {
  const ScheduleChooser chooser(spec, target);
  return chooser.schedules(chooser.choose(problem));
}

std::vector<std::vector<Schedule>> reachable_schedules(const AttentionSpec& spec,
                                                       const Target& target,
                                                       const AttentionProblems& problems,
                                                       std::string_view winners) {
  const ScheduleChooser chooser(spec, target, winners);
  std::vector<std::vector<Schedule>> reachable;
  for (const std::size_t number : chooser.choose_all(problems))
    reachable.push_back(chooser.schedules(number));
  return reachable;
}

}  // namespace flashcore
