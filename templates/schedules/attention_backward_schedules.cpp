// Schedules that ship for the programs of attention's backward pass, as tables: for each program the
// tiles of warpgroups and those of warps, the best first. Tiles that do not fit are refused, and the
// next are taken. Those for wgmma were measured on one H200 (docs/performance_hopper.md); the others
// keep what FlashAttention-2's tiles keep in registers.
#include <algorithm>
#include <span>

#include "templates/attention_backward.h"
#include "templates/choice/expression_traits.h"
#include "templates/schedules/schedule_parts.h"

namespace flashcore {
namespace {

enum Trait : unsigned {
  full_only = 1,    ///< for full masks alone
  masked_only = 2,  ///< for all others alone
  peel_masks = 4,
  ping_pong = 8,
  ascending = 16,
  persistent = 32,
  last_tiles_first = 64,  ///< under a mask
  dynamic = 128,          ///< the dynamic persistent tile scheduler, with heads grouped for L2
  vectors = 256,          ///< of the loop's axis come with its tiles
  kept = 512,             ///< left operands stay in registers
  one_condition = 1024,   ///< for plain scores under masks of one condition, as causal ones are
  several = 2048,         ///< for plain scores under masks of several conditions, as windows are
  anew = 4096,            ///< addresses of outputs are computed anew for each output tile
};

/// Tiles for queries and values of up to so many columns.
struct Tiles {
  int least, most;
  int rows, cols, warps_m, warps_n, stages;
  unsigned traits = 0;
};
constexpr int any = 1 << 20;  // columns

// ---- warpgroups: two, which divide the tile of 128 rows or columns

/// Two iterations in flight where registers allow it, mostly with ping-pong. From 113 to 128 columns they
/// leave no register for the number of the tile that the dynamic scheduler hands out: under windows, whose
/// blocks visit few tiles of rows, one iteration in flight with that scheduler is faster.
/// Up to 80 columns, and 96 under a mask, the keys and values are kept, where the compiler can: tiles of few
/// rows read them from shared memory as often as they read the rows.
constexpr Tiles keys_of_warpgroups[] = {
    {1, 48, 96, 128, 8, 1, 2, peel_masks | ascending | vectors | kept | dynamic},
    {49, 64, 64, 128, 8, 1, 3, peel_masks | ping_pong | ascending | vectors | kept | dynamic},
    {65, 80, 48, 128, 8, 1, 3, peel_masks | ping_pong | ascending | vectors | kept | dynamic},
    {81, 96, 64, 128, 8, 1, 2,
     peel_masks | ping_pong | ascending | vectors | kept | dynamic | masked_only | anew},
    {1, 32, 64, 128, 8, 1, 3, peel_masks | ascending | vectors | dynamic},
    {33, 48, 64, 128, 8, 1, 3, peel_masks | ping_pong | ascending | vectors | dynamic},
    {49, 64, 80, 128, 8, 1, 3, peel_masks | ping_pong | ascending | vectors | dynamic},
    {65, 80, 80, 128, 8, 1, 3, peel_masks | ping_pong | ascending | vectors | dynamic | full_only},
    {65, 80, 80, 128, 8, 1, 3, ping_pong | ascending | vectors | dynamic},
    {81, 96, 64, 128, 8, 1, 3, peel_masks | ascending | vectors | dynamic | masked_only | anew},
    {81, 96, 80, 128, 8, 1, 2, peel_masks | ping_pong | ascending | vectors | dynamic},
    {97, 112, 48, 128, 8, 1, 3,
     peel_masks | ping_pong | ascending | vectors | dynamic | masked_only | anew},
    {97, 112, 80, 128, 8, 1, 2, ping_pong | ascending | vectors},
    {113, 128, 48, 128, 8, 1, 3, peel_masks | ping_pong | ascending | vectors | full_only},
    {113, 128, 48, 128, 8, 1, 3, peel_masks | ping_pong | ascending | vectors | one_condition},
    {113, 128, 64, 128, 8, 1, 2, ascending | vectors | dynamic | several},
    {113, 128, 64, 128, 8, 1, 2, ascending | vectors | masked_only},
    {129, 144, 80, 128, 8, 1, 3, ping_pong | vectors | dynamic | masked_only},
    {145, 176, 64, 128, 8, 1, 3, ping_pong | vectors | dynamic | masked_only},
    {177, 192, 48, 128, 8, 1, 3, ping_pong | vectors | dynamic | masked_only},
    {129, 144, 80, 128, 8, 1, 3, ping_pong | vectors},
    {145, 176, 64, 128, 8, 1, 3, ping_pong | vectors},
    {177, 192, 48, 128, 8, 1, 3, ping_pong | vectors},
    {1, 96, 64, 128, 8, 1, 3, peel_masks | ping_pong | ascending | dynamic},
    {1, 96, 64, 128, 8, 1, 3, peel_masks | ping_pong | ascending},
    {97, 128, 48, 128, 8, 1, 3, peel_masks | ascending | full_only},
    {1, 128, 64, 128, 8, 1, 2, ascending},
    {129, 192, 64, 128, 8, 1, 2, ping_pong | dynamic | masked_only},
    {193, any, 48, 128, 8, 1, 2, ping_pong | dynamic | masked_only},
    {129, 192, 64, 128, 8, 1, 2, ping_pong},
    {193, any, 48, 128, 8, 1, 2, ping_pong},
    {1, any, 32, 128, 8, 1, 2},
    {129, any, 32, 128, 8, 1, 1},
};
/// The sums and weights of tiles of 128 rows need more registers than a thread has. With three
/// slots the products of an iteration run beside the scores of the next.
constexpr Tiles adding_keys_of_warpgroups[] = {
    {65, 128, 64, 128, 8, 1, 2, peel_masks | ascending | vectors},
    {1, 64, 64, 128, 8, 1, 3, peel_masks | ascending},
    {1, 128, 64, 128, 8, 1, 2, peel_masks | ascending},
};
constexpr Tiles values_of_warpgroups[] = {
    {129, 192, 64, 128, 8, 1, 3, peel_masks | ping_pong | vectors | full_only},
    {193, any, 64, 128, 8, 1, 2, peel_masks | ping_pong | vectors | full_only},
    {129, 192, 64, 128, 8, 1, 3, vectors | dynamic | masked_only},
    {193, any, 64, 128, 8, 1, 2, vectors | dynamic | masked_only},
    {1, 192, 96, 128, 8, 1, 2, peel_masks | ping_pong | full_only},
    {193, any, 64, 128, 8, 1, 2, peel_masks | ping_pong | full_only},
    {1, 192, 96, 128, 8, 1, 2, dynamic | masked_only},
    {1, 192, 96, 128, 8, 1, 2, masked_only},
    {193, any, 64, 128, 8, 1, 2, dynamic | masked_only},
    {1, any, 64, 128, 8, 1, 2},
    {1, any, 32, 128, 8, 1, 2},
};
/// As many keys as leave three slots: two iterations in flight hold the keys of both.
constexpr Tiles queries_of_warpgroups[] = {
    {1, 64, 128, 128, 8, 1, 3, ping_pong | dynamic | full_only},
    {65, 96, 128, 96, 8, 1, 3, ping_pong | dynamic | full_only},
    {65, 96, 128, 96, 8, 1, 3, peel_masks | ping_pong | last_tiles_first | dynamic | masked_only},
    {97, 128, 128, 64, 8, 1, 3, persistent | ping_pong | full_only},
    {97, 112, 128, 80, 8, 1, 3, peel_masks | ping_pong | last_tiles_first | dynamic | masked_only},
    {113, 128, 128, 80, 8, 1, 3, peel_masks | last_tiles_first | dynamic | masked_only},
    {129, 192, 128, 64, 8, 1, 2, persistent | ping_pong | full_only},
    {193, any, 128, 48, 8, 1, 2, persistent | ping_pong | full_only},
    {129, 192, 128, 64, 8, 1, 2, peel_masks | ping_pong | last_tiles_first | dynamic | masked_only},
    {193, any, 128, 48, 8, 1, 2, peel_masks | ping_pong | last_tiles_first | dynamic | masked_only},
    {1, 64, 128, 128, 8, 1, 3, ping_pong | last_tiles_first},
    {65, 96, 128, 96, 8, 1, 3, ping_pong | last_tiles_first},
    {97, 128, 128, 64, 8, 1, 3, ping_pong | last_tiles_first},
    {129, 192, 128, 64, 8, 1, 2, ping_pong | last_tiles_first},
    {193, any, 128, 48, 8, 1, 2, ping_pong | last_tiles_first},
    {1, 128, 128, 64, 8, 1, 2, last_tiles_first},
    {129, any, 128, 32, 8, 1, 2, last_tiles_first},
};

// ---- products of one warp each: with two warps along the columns each holds half of an output's

/// A warp holds both gradients of 16 keys, or the wider one.
constexpr Tiles keys_of_warps[] = {
    {1, 64, 64, 128, 8, 1, 2},   {1, 128, 32, 128, 8, 1, 2},  {1, any, 32, 64, 4, 1, 1},
    {129, any, 16, 64, 4, 1, 1}, {129, any, 64, 64, 4, 2, 1}, {1, any, 32, 64, 4, 2, 1},
    {1, any, 32, 32, 2, 2, 1},
};
constexpr Tiles queries_of_warps[] = {
    {1, 128, 128, 64, 8, 1, 2},
    {1, 192, 64, 64, 4, 1, 1},
    {1, any, 64, 32, 4, 1, 1},
    {1, any, 32, 32, 2, 1, 1},
};
// Opaque blocks, where the target has no better.
constexpr Tiles keys_of_blocks[] = {
    {1, any, 64, 64, 4, 2, 1},
    {1, any, 32, 64, 4, 2, 1},
    {1, any, 32, 32, 2, 2, 1},
    {1, any, 32, 16, 1, 2, 1},
};
constexpr Tiles queries_of_blocks[] = {
    {1, any, 64, 64, 4, 2, 1},
    {1, any, 32, 64, 2, 2, 1},
    {1, any, 32, 32, 2, 2, 1},
    {1, any, 16, 32, 1, 2, 1},
};

/// The traits of tiles that are not for a spec.
unsigned excluded_traits(const SpecTraits& of) {
  unsigned excluded = of.mask.is_full() ? masked_only : full_only;
  const AttentionSpec& spec = of.spec;
  const bool plain = spec.score.text.empty() && of.mask.bounds_loop() && !of.mask.is_full();
  if (!plain || of.mask.several()) excluded |= one_condition;
  if (!plain || !of.mask.several()) excluded |= several;
  // A persistent block would have to find its segments for every output tile. With load_vectors the
  // programs of packed and padded sequences are right, but were never timed.
  if (spec.packed() || spec.q_lens || spec.kv_lens) excluded |= persistent | dynamic | vectors;
  // A softcap, lookups and a scan for visible tiles leave no register for the number of the
  // tile that the dynamic scheduler hands out.
  if (!of.mask.bounds_loop() || of.score.softcap || of.score.looks_up) excluded |= dynamic;
  return excluded;
}

Schedule schedule_of(const Tiles& tiles, const AttentionSpec& spec, const Target& target,
                     bool of_warpgroups) {
  Schedule s;
  if (of_warpgroups)
    s = warpgroup_tiles(tiles.rows, tiles.cols);
  else
    choose_family(s, target);
  s.tiles = {{"rows", tiles.rows}, {"cols", tiles.cols}};
  s.warps_m = tiles.warps_m;
  s.warps_n = tiles.warps_n;
  s.stages = tiles.stages;
  if (tiles.warps_n > 1 && target.mma_m16n8k16) s.product_split = ProductSplit::columns;
  s.peel_masks = tiles.traits & peel_masks;
  s.ping_pong = tiles.traits & ping_pong;
  s.load_vectors = tiles.traits & vectors;
  s.keep_operands = tiles.traits & kept;
  s.keep_addresses = !(tiles.traits & anew);
  s.descending = !(tiles.traits & ascending);
  s.persistent = tiles.traits & (persistent | dynamic);
  if (tiles.traits & dynamic) {
    s.tile_scheduler = PersistentScheduler::dynamic;
    s.grid_order = GridOrder::grouped;
  }
  s.last_tiles_first = (tiles.traits & last_tiles_first) && !spec.mask.is_full();
  return s;
}

/// A warp for every 8 rows, of which it holds both tensors' elements, or for 4.
std::vector<Schedule> elementwise(const AttentionSpec& spec, const Target& target,
                                  const char* axis) {
  Schedule s;
  choose_family(s, target);
  s.warps_m = 4;
  std::vector<Schedule> schedules;
  for (const int rows : {32, 16}) {
    if (rows == 32 && round_up(widest(spec)) > 128) continue;
    s.tiles = {{axis, rows}};
    schedules.push_back(s);
  }
  return schedules;
}

/// What programs with products have, by their names: the tiles of warpgroups, of warps and of blocks.
struct ProductTiles {
  std::string_view program;
  std::span<const Tiles> of_warpgroups, of_warps, of_blocks;
};
constexpr ProductTiles products[] = {
    {"attention_backward_keys", keys_of_warpgroups, keys_of_warps, keys_of_blocks},
    {"attention_backward_adding_keys", adding_keys_of_warpgroups, keys_of_warps, keys_of_blocks},
    {"attention_backward_values", values_of_warpgroups, keys_of_warps, keys_of_blocks},
    {"attention_backward_queries", queries_of_warpgroups, queries_of_warps, queries_of_blocks},
};

}  // namespace

std::vector<Schedule> attention_backward_schedules(std::string_view program,
                                                   const AttentionSpec& spec,
                                                   const Target& target) {
  const auto* const own = std::ranges::find(products, program, &ProductTiles::program);
  if (own == std::end(products))
    return elementwise(spec, target, program == "attention_backward_groups" ? "cols" : "rows");
  std::vector<Schedule> schedules;
  const int columns = round_up(widest(spec));
  const unsigned excluded = excluded_traits(SpecTraits(spec));
  const auto add = [&](std::span<const Tiles> table, bool of_warpgroups) {
    for (const Tiles& tiles : table)
      if (tiles.least <= columns && columns <= tiles.most && !(tiles.traits & excluded))
        schedules.push_back(schedule_of(tiles, spec, target, of_warpgroups));
  };
  if (target.wgmma) add(own->of_warpgroups, true);
  add(target.mma_m16n8k16 ? own->of_warps : own->of_blocks, false);
  return schedules;
}

}  // namespace flashcore
