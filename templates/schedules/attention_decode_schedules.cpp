// Schedules that ship for attention_decode_*. With few rows both programs wait for memory: what counts
// is how many bytes are in flight. Tiles of many rows by wgmma are those of forward attention.
// docs/decoding.md says what was measured.
#include <algorithm>

#include "templates/attention_decode.h"
#include "templates/schedules/schedule_parts.h"

namespace flashcore {
namespace {

/// Warps along the keys each multiply a part of the tile's keys: few rows occupy one warp.
Schedule split_schedule(const Target& target, int rows, int cols, int stages, int blocks) {
  Schedule s;
  choose_family(s, target);
  s.tiles = {{"rows", rows}, {"cols", cols}};
  s.warps_m = rows / 16;
  s.warps_n = std::max(1, std::min(4, cols / 16) / s.warps_m);
  s.stages = stages;
  s.blocks_per_processor = blocks;
  s.descending = false;
  return s;
}

/// Bytes of the rings of keys and values, and of the query.
int shared_bytes(const DecodeSpec& spec, const Schedule& s) {
  const AttentionSpec& a = spec.attention;
  const int keys = round_up(a.head_dim), values = round_up(a.value_dim());
  return 2 * (s.stages * s.tiles.at("cols") * (keys + values) + s.tiles.at("rows") * keys);
}

/// A producer that loads keys and values by the copy engine, and one consumer warpgroup for every
/// 64 rows; of 64 rows two blocks to a multiprocessor.
Schedule warpgroup_schedule(const DecodeSpec& spec, const Target& target, int rows, int cols) {
  const int columns = round_up(widest(spec.attention));
  Schedule s = warpgroup_tiles(rows, rows <= 64 ? std::min(cols, 64) : cols);
  s.descending = false;
  if (rows <= 64) {
    s.blocks_per_processor = columns <= 128 ? 2 : 1;
    s.reduction_chains = 2;
  }
  // What narrow heads compute between products takes as long as these.
  s.ping_pong = rows > 64 && columns <= 64 && spec.rows == DecodeRows::of_head;
  while (s.tiles["cols"] > 16 && shared_bytes(spec, s) + 4096 > target.shared_per_block)
    s.tiles["cols"] -= 16;
  share_out_boxes(s, spec.attention);
  return s;
}

/// Tiles of many rows: the best first. Where a mask leaves no registers for a loop of its own, all
/// tiles are masked behind a test, and then there are fewer keys.
std::vector<Schedule> warpgroup_schedules(const DecodeSpec& spec, const Target& target, int rows) {
  std::vector<Schedule> schedules;
  if (!target.wgmma) return schedules;
  for (const int cols : {128, 128, 96, 64, 32})
    schedules.push_back(warpgroup_schedule(spec, target, rows, cols));
  schedules.front().peel_masks =
      rows > 64 && spec.rows == DecodeRows::of_head && !spec.attention.mask.is_full();
  schedules.erase(std::unique(schedules.begin(), schedules.end()), schedules.end());
  return schedules;
}

}  // namespace

std::vector<Schedule> attention_decode_split_schedules(const DecodeSpec& spec, const Target& target,
                                                       int row_tile) {
  const int rows = std::min(row_tile, most_decode_rows);
  std::vector<Schedule> schedules;
  if (spec.rows != DecodeRows::packed) schedules = warpgroup_schedules(spec, target, row_tile);
  const auto add = [&](const Schedule& s) {
    if (fit_in_shared(target, s.blocks_per_processor, shared_bytes(spec, s) + 1024))
      schedules.push_back(s);
  };
  if (!target.mma_m16n8k16) {
    // Fragments of unknown layout: the scores and the output lie in shared memory, too.
    for (const int cols : {64, 32})
      for (const int tile : {rows, 16})
        schedules.push_back(split_schedule(target, tile, cols, 1, 1));
    return schedules;
  }
  // Two blocks with two tiles in flight each, of 32 KiB, keep the memory of an H200 busy.
  const int wide = widest(spec.attention) <= 64 ? 128 : 64;
  for (const int blocks : {2, 1})
    for (const int cols : {wide, 64, 32})
      for (const int stages : {3, 2}) add(split_schedule(target, rows, cols, stages, blocks));
  add(split_schedule(target, 16, 32, 1, 1));
  return schedules;
}

std::vector<Schedule> attention_decode_combine_schedules(const DecodeSpec& spec,
                                                         const Target& target) {
  Schedule s;
  choose_family(s, target);
  s.tiles = {{spec.combines_tiles ? "rows" : "splits", 16}};
  s.warps_m = 4;
  s.descending = false;
  return {s};
}

}  // namespace flashcore
