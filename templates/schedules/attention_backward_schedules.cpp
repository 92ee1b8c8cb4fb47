// Schedules that ship for attention_backward_*. Those for wgmma were measured on one H200
// (docs/performance_hopper.md); the others keep what FlashAttention-2's tiles keep in registers.
#include <algorithm>

#include "templates/attention_backward.h"
#include "templates/attention_backward_adding.h"
#include "templates/schedules/schedule_parts.h"

namespace flashcore {
namespace {

/// The wider of a query and a value.
int widest(const AttentionSpec& spec) {
  return round_up(std::max(spec.head_dim, spec.value_dim()));
}

/// A persistent block would have to find its segments for every output tile.
bool may_persist(const AttentionSpec& spec) {
  return !spec.packed() && !spec.q_lens && !spec.kv_lens;
}

/// Two warpgroups, which divide the tile of 128 rows or columns.
Schedule warpgroups(int rows, int cols, int stages) {
  Schedule s = warpgroup_tiles(rows, cols);
  s.warps_m = 128 / 16;
  s.stages = stages;
  return s;
}

/// Products of one warp each, or opaque blocks where the target has no better. With two warps along
/// the columns each holds half of an output's columns.
Schedule warps(const Target& target, int rows, int cols, int warps_m, int warps_n, int stages) {
  Schedule s;
  choose_family(s, target);
  s.tiles = {{"rows", rows}, {"cols", cols}};
  s.warps_m = warps_m;
  s.warps_n = warps_n;
  s.stages = stages;
  if (warps_n > 1 && target.mma_m16n8k16) s.product_split = ProductSplit::columns;
  return s;
}

/// A warp holds both gradients of 16 keys, or the wider one. Tiles that do not fit are refused, and
/// the next is taken.
std::vector<Schedule> keys_of_warps(const AttentionSpec& spec, const Target& target) {
  if (!target.mma_m16n8k16)
    return {warps(target, 64, 64, 4, 2, 1), warps(target, 32, 64, 4, 2, 1),
            warps(target, 32, 32, 2, 2, 1), warps(target, 32, 16, 1, 2, 1)};
  std::vector<Schedule> schedules;
  if (widest(spec) <= 64) schedules.push_back(warps(target, 64, 128, 8, 1, 2));
  if (widest(spec) <= 128) {
    schedules.push_back(warps(target, 32, 128, 8, 1, 2));
    schedules.push_back(warps(target, 32, 64, 4, 1, 1));
  } else {
    schedules.push_back(warps(target, 32, 64, 4, 1, 1));
    schedules.push_back(warps(target, 16, 64, 4, 1, 1));
    schedules.push_back(warps(target, 64, 64, 4, 2, 1));
  }
  schedules.push_back(warps(target, 32, 64, 4, 2, 1));
  schedules.push_back(warps(target, 32, 32, 2, 2, 1));
  return schedules;
}

std::vector<Schedule> queries_of_warps(const AttentionSpec& spec, const Target& target) {
  if (!target.mma_m16n8k16)
    return {warps(target, 64, 64, 4, 2, 1), warps(target, 32, 64, 2, 2, 1),
            warps(target, 32, 32, 2, 2, 1), warps(target, 16, 32, 1, 2, 1)};
  std::vector<Schedule> schedules;
  if (widest(spec) <= 128) schedules.push_back(warps(target, 128, 64, 8, 1, 2));
  if (widest(spec) <= 192) schedules.push_back(warps(target, 64, 64, 4, 1, 1));
  schedules.push_back(warps(target, 64, 32, 4, 1, 1));
  schedules.push_back(warps(target, 32, 32, 2, 1, 1));
  return schedules;
}

void append(std::vector<Schedule>& schedules, const std::vector<Schedule>& others) {
  schedules.insert(schedules.end(), others.begin(), others.end());
}

/// A warp for every 8 rows, of which it holds both tensors' elements, or for 4.
std::vector<Schedule> of_rows(const AttentionSpec& spec, const Target& target, const char* axis) {
  Schedule s;
  choose_family(s, target);
  s.warps_m = 4;
  std::vector<Schedule> schedules;
  for (const int rows : {32, 16}) {
    if (rows == 32 && widest(spec) > 128) continue;
    s.tiles = {{axis, rows}};
    schedules.push_back(s);
  }
  return schedules;
}

}  // namespace

std::vector<Schedule> attention_backward_rows_schedules(const AttentionSpec& spec,
                                                        const Target& target) {
  return of_rows(spec, target, "rows");
}

std::vector<Schedule> attention_backward_keys_schedules(const AttentionSpec& spec,
                                                        const Target& target) {
  std::vector<Schedule> schedules;
  const int dim = widest(spec);
  if (target.wgmma && dim <= 128) {
    // Two iterations in flight where registers allow it, with ping-pong up to head_dim 96.
    Schedule s = warpgroups(dim <= 96 ? 64 : 48, 128, 3);
    s.peel_masks = true;
    s.ping_pong = dim <= 96;
    s.descending = false;
    if (dim <= 96 || spec.mask.is_full()) schedules.push_back(s);
    Schedule one = warpgroups(64, 128, 2);
    one.descending = false;
    schedules.push_back(one);
    schedules.push_back(warpgroups(32, 128, 2));
  } else if (target.wgmma) {
    Schedule s = warpgroups(dim <= 192 ? 64 : 48, 128, 2);
    s.ping_pong = true;
    schedules.push_back(s);
    schedules.push_back(warpgroups(32, 128, 2));
    schedules.push_back(warpgroups(32, 128, 1));
  }
  append(schedules, keys_of_warps(spec, target));
  return schedules;
}

std::vector<Schedule> attention_backward_adding_keys_schedules(const AttentionSpec& spec,
                                                               const Target& target) {
  std::vector<Schedule> schedules;
  const int dim = widest(spec);
  if (target.wgmma && dim <= 128) {
    // The sums and weights of tiles of 128 rows need more registers than a thread has. With three
    // slots the products of an iteration run beside the scores of the next.
    for (int stages = dim <= 64 ? 3 : 2; stages >= 2; --stages) {
      Schedule s = warpgroups(64, 128, stages);
      s.descending = false;
      s.peel_masks = true;
      schedules.push_back(s);
    }
  }
  append(schedules, keys_of_warps(spec, target));
  return schedules;
}

std::vector<Schedule> attention_backward_values_schedules(const AttentionSpec& spec,
                                                          const Target& target) {
  std::vector<Schedule> schedules;
  if (target.wgmma) {
    Schedule s = warpgroups(widest(spec) <= 192 ? 96 : 64, 128, 2);
    const bool masked = !spec.mask.is_full();
    s.peel_masks = s.ping_pong = !masked;
    schedules.push_back(s);
    schedules.push_back(warpgroups(64, 128, 2));
    schedules.push_back(warpgroups(32, 128, 2));
  }
  append(schedules, keys_of_warps(spec, target));
  return schedules;
}

std::vector<Schedule> attention_backward_queries_schedules(const AttentionSpec& spec,
                                                           const Target& target) {
  std::vector<Schedule> schedules;
  if (target.wgmma) {
    const int dim = widest(spec);
    const bool masked = !spec.mask.is_full();
    // As many keys as leave three slots: two iterations in flight hold the keys of both.
    const int keys = dim <= 64 ? 128 : dim <= 96 ? 96 : dim <= 128 ? 64 : dim <= 192 ? 64 : 48;
    Schedule s = warpgroups(128, keys, dim <= 128 ? 3 : 2);
    // Beyond 128 columns persistent blocks under a mask were slower at 8k.
    if (may_persist(spec) && (!masked || (dim > 96 && dim <= 128))) {
      Schedule persistent = s;
      persistent.persistent = true;
      if (masked && dim <= 128) persistent.tiles["cols"] = 80;
      persistent.ping_pong = dim > 128;
      schedules.push_back(persistent);
    }
    s.ping_pong = true;
    s.last_tiles_first = masked;
    schedules.push_back(s);
    Schedule safer = warpgroups(128, dim <= 128 ? 64 : 32, 2);
    safer.last_tiles_first = masked;
    schedules.push_back(safer);
  }
  append(schedules, queries_of_warps(spec, target));
  return schedules;
}

std::vector<Schedule> attention_backward_groups_schedules(const AttentionSpec& spec,
                                                          const Target& target) {
  return of_rows(spec, target, "cols");
}

}  // namespace flashcore
