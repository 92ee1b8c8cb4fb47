// Schedules that ship for attention_forward: on wgmma, on mma.sync, and on opaque blocks where
// there is neither. docs/performance.md says what was measured and what was tried besides.
#include <algorithm>
#include <optional>

#include "templates/attention.h"
#include "templates/attention_winners.h"
#include "templates/chosen_schedules.h"
#include "templates/families.h"
#include "templates/float_schedules.h"
#include "templates/hopper_schedules.h"
#include "templates/register_demand.h"
#include "templates/split_schedules.h"
#include "templates/wide_schedules.h"

namespace flashcore {
namespace {

int padded(int dim) { return (dim + 15) / 16 * 16; }

/// The kernel that was measured: everything read off the tensors, every sequence as long as they
/// are.
bool all_lengths_open(const AttentionSpec& spec) {
  return !spec.heads && !spec.batch && !spec.q_len && !spec.kv_len && !spec.packed() &&
         !spec.q_lens && !spec.kv_lens;
}

/// Bytes of shared memory for opaque blocks with one tile of keys and values: every row is 8
/// elements longer than its tile, and scores, probabilities and the product with the values take
/// turns in one place.
int block_bytes(const AttentionSpec& spec, int rows, int cols) {
  const int d = padded(spec.head_dim) + 8, dv = (spec.value_dim() + 31) / 32 * 32 + 8;
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
  const int dim = std::max(spec.head_dim, spec.value_dim());
  const bool masked = !spec.mask.is_full();
  // Data centre parts have 160 KiB a multiprocessor and more, workstation parts 100.
  const bool roomy = target.shared_per_block >= 160 * 1024;
  // The largest tiles leave no register free. They were measured, and do not spill, on sm_90.
  const bool measured = target.capability == 90;
  // One block of 128 rows with two tiles of 64 keys in flight.
  const int large_block = (128 + 2 * 2 * 64) * padded(dim) * size_of(spec.dtype);
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

/// By rule, where no search has found a better one.
Schedule ruled_schedule(const AttentionSpec& spec, const Target& target,
                        ProblemQuestions& problem) {
  if (target.wgmma) return hopper_schedule(spec, problem);
  return target.mma_m16n8k16 ? warp_schedule(spec, target) : block_schedule(spec, target);
}

std::vector<Schedule> ruled_schedules(const AttentionSpec& spec, const Target& target,
                                      ProblemQuestions& problem) {
  if (is_wide(spec) && target.mma_m16n8k16) return wide_schedules(spec, target);
  std::vector<Schedule> schedules{ruled_schedule(spec, target, problem)};
  if (target.wgmma) {
    // Every block on its own, fewer keys a tile, then one block a multiprocessor with small tiles,
    // and then no warpgroups at all.
    Schedule alone = schedules.front();
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
    Schedule smaller = alone;
    smaller.tiles["rows"] = 128;
    smaller.tiles["cols"] = std::min(64, smaller.tiles["cols"]);
    smaller.warps_m = 8;
    smaller.producer = true;
    smaller.blocks_per_processor = 1;
    smaller.persistent = smaller.ping_pong = false;
    smaller.outer_stages = 1;
    smaller.staged_stores = true;
    smaller.grid_order = GridOrder::tiles_first;
    smaller.tile_scheduler = PersistentScheduler::serpentine;
    schedules.push_back(std::move(smaller));
    Target older = target;
    older.wgmma = older.tma = false;
    KnownProblem nothing({});
    for (Schedule& other : ruled_schedules(spec, older, nothing))
      schedules.push_back(std::move(other));
    return schedules;
  }
  for (int cols : {64, 32}) {
    Schedule smaller = schedules.front();
    if (smaller.tiles["cols"] <= cols) continue;
    smaller.tiles["cols"] = cols;
    schedules.push_back(std::move(smaller));
  }
  if (target.mma_m16n8k16) {
    // Sixteen rows a warp and few keys: slow, but whatever an expression asks for fits.
    Schedule smallest = schedules.front();
    smallest.tiles = {{"rows", 64},
                      {"cols", padded(std::max(spec.head_dim, spec.value_dim())) <= 128 ? 32 : 16}};
    smallest.warps_m = 4;
    smallest.stages = 1;
    smallest.keep_operands = smallest.peel_masks = false;
    smallest.blocks_per_processor = 1;
    if (!(smallest == schedules.back())) schedules.push_back(std::move(smallest));
  }
  return schedules;
}

}  // namespace

std::vector<Schedule> chosen_schedules(const AttentionSpec& spec, const Target& target,
                                       ProblemQuestions& problem, ProblemQuestions& fixed) {
  std::vector<Schedule> schedules = spec.splits_products() ? split_schedules(spec, target)
                                    : spec.dtype == DType::f32
                                        ? float_schedules(spec, target)
                                        : ruled_schedules(spec, target, problem);
  leave_out_crowded(schedules, spec, target);
  if (std::optional<Schedule> winner = winning_schedule(spec, target, fixed))
    schedules.insert(schedules.begin(), std::move(*winner));
  return schedules;
}

Schedule attention_schedule(const AttentionSpec& spec, const Target& target,
                            const AttentionProblem& problem) {
  return attention_schedules(spec, target, problem).front();
}

std::vector<Schedule> attention_schedules(const AttentionSpec& spec, const Target& target,
                                          const AttentionProblem& problem) {
  KnownProblem known(problem), fixed(as_fixed_by(spec, problem));
  return chosen_schedules(spec, target, known, fixed);
}

std::vector<std::vector<Schedule>> reachable_schedules(const AttentionSpec& spec,
                                                       const Target& target,
                                                       const AttentionProblems& problems,
                                                       std::string_view winners) {
  const WinnerFinder measured = winners.empty()
                                    ? [](ProblemQuestions&) { return std::optional<Schedule>(); }
                                    : winners_of(winners, spec, target);
  std::vector<std::vector<Schedule>> reachable;
  const auto add = [&](std::vector<Schedule> schedules, ProblemQuestions& problem) {
    if (std::optional<Schedule> winner = measured(problem))
      schedules.insert(schedules.begin(), std::move(*winner));
    if (std::find(reachable.begin(), reachable.end(), schedules) == reachable.end())
      reachable.push_back(std::move(schedules));
  };
  KnownProblem nothing(as_fixed_by(spec, AttentionProblem{}));
  add(attention_schedules(spec, target), nothing);
  ProblemExploration open(as_fixed_by(spec, problems));
  do {
    add(chosen_schedules(spec, target, open, open), open);
  } while (open.next());
  return reachable;
}

}  // namespace flashcore
