// What differs between the candidates of a spec is what the cost model weighs up. Their tiles are as large as
// shared memory allows (hopper_tiles.h). How many key columns registers hold (measured_columns.h), and in
// which order most blocks issue what they compute (measured_orderings.h), is measured.
// docs/performance_hopper.md has the figures, and what was tried besides.
#include <algorithm>
#include <string_view>
#include <utility>

#include "templates/schedules/hopper_tiles.h"
#include "templates/schedules/measured_columns.h"
#include "templates/schedules/measured_orderings.h"
#include "templates/schedules/schedule_lists.h"
#include "templates/schedules/schedule_parts.h"

namespace flashcore {
namespace {

using Traits = HopperTraits;

Schedule tiles(const Traits& traits, int rows, int cols) {
  Schedule s = warpgroup_tiles(rows, cols);
  s.last_tiles_first = traits.masked;
  return s;
}

/// Two slots for the query, where there is room, so that the next one is loaded ahead.
void fetch_ahead(const Traits& traits, Schedule& s) {
  const int scan = traits.scanned ? 2 * 1024 : 0;
  const int room = (hopper_shared_bytes + 1024) / s.blocks_per_processor - 1024 - scan;
  const int output = s.staged_stores ? 2 * s.tiles["rows"] * traits.dv : 0;
  s.outer_stages = 2;
  const bool fits = tile_bytes(traits, s) <= room,
             fits_beside = tile_bytes(traits, s) + output <= room;
  // Without a buffer of its own the output is staged in the query's slot, and the load of the next
  // query waits for the store. Several blocks on a multiprocessor overlap anyway, and are better
  // off with less shared memory.
  if (!fits || (!fits_beside && s.blocks_per_processor > 1))
    s.outer_stages = 1;
  else if (!fits_beside)
    s.staged_stores = false;
}

/// A block of two or three warpgroups that a multiprocessor has to itself, in a measured ordering; slots
/// for the query and the buffer of the output are dropped where shared memory has no room for them.
Schedule large(const Traits& traits, int rows, int cols, const Schedule& ordering) {
  Schedule s = warpgroup_tiles(rows, cols, ordering);
  s.last_tiles_first = traits.masked;
  s.persistent = traits.may_persist;
  if (s.outer_stages > 1)
    fetch_ahead(traits, s);
  else if (s.persistent && tile_bytes(traits, s) + 2 * rows * traits.dv > hopper_shared_bytes)
    s.staged_stores = false;
  return s;
}

/// Takes as many key columns, up to those that it has, as registers and shared memory have room for.
/// Returns whether there are any.
bool narrow(const Traits& traits, Schedule& s) {
  const int step = traits.column_step;
  int& cols = s.tiles["cols"];
  cols = std::min(cols, most_columns(traits, s)) / step * step;
  while (cols > 0 && tile_bytes(traits, s) > hopper_shared_bytes) cols -= step;
  return cols > 0;
}

/// The static tile scheduler, unless the schedule has the dynamic one already or each role would have to find
/// the segments of its tiles, and the dynamic one with three orders of output tiles: as many heads side by
/// side as L2 has room for; one head after the other; and, where tiles differ in length, all heads side by
/// side, so that the longest tiles of all come first.
void add_with_schedulers(const Traits& traits, const Schedule& s, std::vector<Schedule>& to) {
  if (s.tile_scheduler != PersistentScheduler::dynamic && !traits.ragged) to.push_back(s);
  Schedule dynamic = s;
  dynamic.tile_scheduler = PersistentScheduler::dynamic;
  // The number of the next tile takes registers, so that fewer key columns may fit.
  if (!narrow(traits, dynamic)) return;
  // The tiles of packed sequences, one behind the other, read the keys of few of them at a time.
  if (traits.spec.packed()) {
    dynamic.grid_order = GridOrder::tiles_last;
    to.push_back(dynamic);
    return;
  }
  dynamic.grid_order = GridOrder::grouped;
  to.push_back(dynamic);
  // What blocks of 64 rows with divided columns read comes from L2 no faster than they compute: blocks
  // that run at the same time have to read the same heads.
  if (s.warps_n > 1) return;
  dynamic.grid_order = GridOrder::tiles_first;
  to.push_back(dynamic);
  if (!traits.masked) return;
  dynamic.grid_order = GridOrder::tiles_last;
  to.push_back(dynamic);
}

/// Blocks that scan for their tiles: blocks with the same rows of all heads are neighbours, and a
/// block may have two heads, for which it scans once, where registers hold what the scan finds.
void add_with_scan(const Traits& traits, Schedule s, std::vector<Schedule>& to) {
  if (!traits.scanned || traits.ragged) {
    to.push_back(std::move(s));
    return;
  }
  s.grid_order = GridOrder::tiles_last;
  to.push_back(s);
  s.positions_per_block = 2;
  if (traits.mask.by_head() || !narrow(traits, s)) return;
  if (traits.widest > 112 && s.blocks_per_processor > 1) {
    // Measured at head_dim 128 for causal documents: 2 to 3 % faster than a second slot for the query
    // and two chains of sums.
    s.staged_stores = true;
    s.reduction_chains = 1;
  } else {
    fetch_ahead(traits, s);
  }
  to.push_back(std::move(s));
}

void add(const Traits& traits, Schedule s, std::vector<Schedule>& to) {
  if (s.persistent)
    add_with_schedulers(traits, s, to);
  else
    add_with_scan(traits, std::move(s), to);
}

void add_large(const Traits& traits, std::vector<Schedule>& to) {
  constexpr int most = 128, few = 64;  // key columns
  // Returns how many key columns the tiles have.
  const auto add_family = [&](std::string_view family, int rows, int cols) {
    const Schedule* const ordering = measured_ordering(traits, family);
    Schedule s = warpgroup_tiles(rows, cols);
    if (ordering == nullptr || !narrow(traits, s)) return 0;
    s = large(traits, rows, s.tiles["cols"], *ordering);
    s.ping_pong = s.ping_pong || family == "128/ping_pong";
    if (!narrow(traits, s)) return 0;
    cols = s.tiles["cols"];
    add(traits, std::move(s), to);
    return cols;
  };
  for (const char* family : {"128", "128/ping_pong"})
    if (add_family(family, 128, most) > few && traits.widest > 128) add_family(family, 128, few);
  add_family("192", 192, most);
}

/// Two blocks with neighbouring query rows may load the keys and values that both see together: half as
/// many bytes come from L2, and what that saves of the power pays for the waits of the blocks for each
/// other in long loops. With as many key columns as shared memory has room for, up to 176.
void add_multicast(const Traits& traits, std::vector<Schedule>& to) {
  constexpr int most = 176;
  const Schedule* const ordering = measured_ordering(traits, "128/multicast");
  if (ordering == nullptr || !traits.may_persist || traits.ragged) return;
  Schedule s = large(traits, 128, most, *ordering);
  s.multicast_blocks = 2;
  if (narrow(traits, s)) to.push_back(std::move(s));
}

/// Small blocks, of which several share a multiprocessor or, where there are few, several have
/// their own: a warpgroup multiplies while another computes its softmax.
void add_small(const Traits& traits, std::vector<Schedule>& to) {
  const auto add = [&](int cols, int blocks, int splits) {
    Schedule s = tiles(traits, 64, cols);
    s.reduction_chains = 2;
    s.blocks_per_processor = blocks;
    s.cluster_splits = splits;
    s.staged_stores = cols == 64 && blocks > 1 && (!traits.scanned || traits.ragged);
    if (blocks * (tile_bytes(traits, s) + 2048) > hopper_shared_bytes) return;
    add_with_scan(traits, s, to);
  };
  add(64, 1, 1);
  if (traits.dv <= 128) add(128, 1, 1);
  if (traits.widest <= 128) add(64, traits.widest <= 64 ? 3 : 2, 1);
  if (traits.widest <= 64) add(128, 2, 1);
  // Measured for masks that bound the loop, and sequences of one length.
  if (!traits.may_persist || traits.ragged) return;
  for (const int splits : {2, 4}) {
    add(64, 1, splits);
    if (traits.dv <= 128) add(128, 1, splits);
  }
  if (traits.widest <= 64) add(128, 2, 2);
}

/// Small blocks in which a thread of the only warpgroup issues the loads: for kernels that compute
/// nothing between products but the softmax and masks that bound the loop. Kernels with lookups are
/// faster with a producer, and tiles of a dense mask need one.
void add_without_producer(const Traits& traits, std::vector<Schedule>& to) {
  const Schedule* const ordering = measured_ordering(traits, "64/no_producer");
  if (ordering == nullptr) return;
  Schedule s = warpgroup_tiles(64, 64, *ordering);
  s.last_tiles_first = traits.masked;
  s.producer = false;
  s.blocks_per_processor = 3;
  if (traits.widest > 64) s.stages = 1;
  to.push_back(std::move(s));
}

/// Above a head_dim of 256 a thread of two warpgroups holds the outputs of 128 rows up to 352 columns.
/// Wider ones are divided among two warpgroups with 64 rows in common, which exchange their parts of
/// the weights; with one stage there is room for 64 keys. Persistent blocks of sequences that differ in
/// length were not timed.
void add_wide(const Traits& traits, std::vector<Schedule>& to) {
  constexpr int most = 352;  // output columns of 128 rows that threads of two warpgroups hold
  const bool divided = traits.dv > most;
  if (traits.dv > 2 * most) return;
  Schedule s = tiles(traits, divided ? 64 : 128, 64);
  if (divided) {
    s.warps_n = 2;
    s.product_split = ProductSplit::columns;
    s.stages = 1;
  }
  s.persistent = traits.may_persist && !traits.ragged;
  s.peel_masks = divided;
  s.rescale_before_product = !divided || !traits.masked;
  s.staged_stores = divided || !s.persistent;
  s.descending = !traits.masked;
  if (narrow(traits, s)) add(traits, std::move(s), to);
}

/// Whether the partial tile of query rows is the first one: of the rows that are not there, no keys are
/// visited then. Where a tile has more rows than columns that saves whole key tiles, 5 % of all that a
/// causal mask of 4096 keys has in tiles of 192 x 80.
bool ends_with_axis(const Traits& traits, const Schedule& s) {
  return traits.masked && traits.mask.bounds_loop() && !traits.mask.looks_up() && !traits.loads &&
         !traits.score.looks_up_rows && !traits.ragged && s.multicast_blocks == 1 &&
         !s.staged_stores && s.tiles.at("rows") > s.tiles.at("cols");
}

}  // namespace

std::vector<Schedule> hopper_candidates(const SpecTraits& of) {
  const Traits traits{of};
  std::vector<Schedule> candidates;
  if (is_wide(of.spec)) {
    add_wide(traits, candidates);
    for (Schedule& s : candidates) share_out_boxes(s, of.spec);
    return candidates;
  }
  add_large(traits, candidates);
  add_small(traits, candidates);
  add_without_producer(traits, candidates);
  add_multicast(traits, candidates);
  for (Schedule& s : candidates) {
    s.end_aligned_tiles = ends_with_axis(traits, s);
    share_out_boxes(s, of.spec);
    s.ping_pong = s.ping_pong || falls_into_step(s, of.spec);
  }
  return candidates;
}

}  // namespace flashcore
