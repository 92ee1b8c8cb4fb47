// Schedules that ship for the programs of attention's backward pass, as tables: for each program the
// tiles of warpgroups and those of warps, the best first. Tiles that do not fit are refused, and the
// next are taken. Those for wgmma were measured on one H200 (docs/performance_hopper.md); the others
// keep what FlashAttention-2's tiles keep in registers.
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <span>

#include "templates/attention_backward.h"
#include "templates/choice/expression_traits.h"
#include "templates/schedules/schedule_parts.h"

namespace flashcore {
namespace {

enum Trait : unsigned {
  // For which specs a row of a table is: those of the kinds that it names, where it names any.
  full = 1,     ///< masks that hide nothing
  causal = 2,   ///< those of one condition that bounds the loop
  windows = 4,  ///< of several such conditions
  scanned = 8,  ///< others: a block scans for the tiles that it visits
  plain = 16,   ///< without a score expression
  softcapped = 32,
  looked_up = 262144,  ///< threads look up an element for each score, as of a relative bias
  scored = 64,         ///< with any other score expression
  dense = 128,
  ragged = 256,  ///< packed or padded sequences
  /// With head_dims that are multiples of 16. Rows of others begin within sectors of L2, and for most of them
  /// tiles of one warpgroup, which read L2 twice as often, were slower.
  whole = 1048576,
  // What its schedule has.
  peel_masks = 512,
  ping_pong = 1024,
  ascending = 2048,
  persistent = 4096,
  last_tiles_first = 8192,  ///< under a mask
  /// Where blocks may be persistent: the dynamic tile scheduler, with heads grouped for L2.
  dynamic = 16384,
  vectors = 32768,  ///< of the loop's axis come with its tiles
  kept = 65536,     ///< left operands stay in registers
  anew = 131072,    ///< addresses of outputs are computed anew for each output tile
  late = 524288,    ///< products behind which an iteration computes nothing run beside the next one
};
constexpr unsigned masks = full | causal | windows | scanned, masked = masks & ~full;
/// Masked specs whose blocks may be persistent.
constexpr unsigned persistent_masked = dense | causal | windows | plain | scored;
constexpr unsigned scores = plain | softcapped | scored | looked_up, sequences = dense | ragged;

constexpr int any = any_length;  ///< columns, rows or keys
/// Lengths up to which tiles of one warpgroup were measured to be faster: they read L2 twice as often.
constexpr std::int64_t shortest = 512, brief = 4096, medium = 8192;

/// Tiles for queries and values of up to so many columns.
struct Tiles {
  int least, most;
  int rows, cols, warps_m, warps_n, stages;
  unsigned traits = 0;
  int blocks = 1;              ///< that a multiprocessor holds at once
  std::int64_t longest = any;  ///< for sequences of up to so many rows and keys
};

// ---- warpgroups: two, which divide the tile of 128 rows or columns; or one, with a tile of 64, in two or
// three blocks a multiprocessor, which begin, end and compute their weights beside each other's products

/// What nearly all loops over rows have, and those over keys in blocks of one warpgroup.
constexpr unsigned usual = peel_masks | ascending | vectors;
constexpr unsigned usual_keys = peel_masks | last_tiles_first;
/// Scores that were timed in blocks of one warpgroup beside softcapped ones; lookups were not.
constexpr unsigned timed = plain | scored;
/// First blocks of one warpgroup, for the kinds and lengths of sequences for which they are faster.
/// Blocks of two have two iterations in flight where registers allow it, mostly with ping-pong. From 113 to
/// 128 columns those leave no register for the number of the tile that the dynamic scheduler hands out: under
/// windows, whose blocks visit few tiles of rows, one iteration in flight with that scheduler is faster.
/// Up to 96 columns the keys and values are kept, where the compiler can: tiles of few rows read them from
/// shared memory as often as they read the rows. Blocks that are not persistent have registers for more rows.
constexpr Tiles keys_of_warpgroups[] = {
    {1, 80, 64, 64, 4, 1, 2, usual | softcapped | causal | windows, 2, medium},
    {81, 96, 64, 64, 4, 1, 3, usual | softcapped | causal | windows, 2, medium},
    {97, 112, 48, 64, 4, 1, 2, usual | softcapped | causal | windows, 2, medium},
    {113, 128, 32, 64, 4, 1, 3, usual | softcapped | causal, 2, medium},
    {1, 32, 64, 64, 4, 1, 2, usual | timed | full | ragged, 3, brief},
    {1, 32, 64, 64, 4, 1, 2, usual | timed | masked | ragged, 3, medium},
    {33, 80, 64, 64, 4, 1, 3, usual | timed | masked | ragged, 2, medium},
    {33, 64, 128, 64, 4, 1, 2, usual | timed | full | ragged, 2, medium},
    {65, 80, 96, 64, 4, 1, 2, usual | timed | full | ragged | whole, 2, medium},
    {81, 96, 64, 64, 4, 1, 3, usual | timed | causal | ragged | whole, 2, medium},
    {81, 96, 64, 64, 4, 1, 3, usual | timed | scanned | ragged, 2, medium},
    {97, 112, 64, 64, 4, 1, 2, usual | timed | masked | ragged, 2, brief},
    {113, 128, 64, 64, 4, 1, 2, ascending | vectors | timed | masked | ragged, 2, brief},
    {1, 80, 64, 64, 4, 1, 3, usual | plain | scanned | dense, 2},
    {81, 112, 64, 64, 4, 1, 2, usual | plain | scanned | dense, 2},
    {113, 128, 48, 64, 4, 1, 2, usual | plain | scanned | dense, 2},
    {1, 32, 64, 64, 4, 1, 2, usual | dynamic | timed | windows | dense, 3},
    {1, 32, 64, 64, 4, 1, 2, usual | dynamic | scored | causal | dense, 3, medium},
    {49, 64, 64, 64, 4, 1, 3, usual | kept | dynamic | scored | causal | dense, 2, medium},
    {65, 80, 64, 64, 4, 1, 2, usual | kept | dynamic | scored | causal | dense, 2, medium},
    {65, 80, 64, 64, 4, 1, 2, usual | kept | dynamic | timed | windows | dense, 2},
    {65, 80, 64, 64, 4, 1, 3, usual | dynamic | plain | full | causal | dense | whole, 2, brief},
    {65, 80, 64, 64, 4, 1, 3, usual | dynamic | scored | full | causal | dense, 2, brief},
    {81, 96, 96, 64, 4, 1, 2, usual | plain | full | dense | whole, 2, medium},
    {97, 128, 64, 64, 4, 1, 2, usual | scored | causal | dense, 2, brief},
    {113, 128, 48, 64, 4, 1, 3, usual | plain | full | whole, 2, brief},
    {97, 112, 64, 64, 4, 1, 2, usual | plain | full | causal | windows | dense | whole, 2,
     shortest},
    {113, 128, 64, 64, 4, 1, 2, ascending | vectors | plain | causal | dense, 2, shortest},
    {1, 48, 64, 128, 8, 1, 3, usual | ping_pong | softcapped},
    {49, 96, 64, 128, 8, 1, 2, usual | ping_pong | softcapped},
    {97, 112, 48, 128, 8, 1, 2, usual | softcapped},
    {113, 128, 32, 128, 8, 1, 3, usual | ping_pong | softcapped | causal},
    {129, 192, 64, 128, 8, 1, 2, peel_masks | ping_pong | vectors | softcapped | causal},
    {1, 32, 128, 128, 8, 1, 2, usual | kept | dynamic},
    {33, 48, 80, 128, 8, 1, 2, usual | kept | ragged},
    {33, 48, 96, 128, 8, 1, 2, usual | kept | dynamic},
    {49, 64, 64, 128, 8, 1, 2, usual | ping_pong | kept | ragged},
    {49, 64, 64, 128, 8, 1, 3, usual | ping_pong | kept | dynamic},
    {65, 96, 64, 128, 8, 1, 2, usual | kept | ragged},
    {65, 80, 48, 128, 8, 1, 3, usual | ping_pong | kept | dynamic},
    {81, 96, 64, 128, 8, 1, 2, usual | ping_pong | kept | dynamic | causal | windows | anew},
    {1, 32, 128, 128, 8, 1, 2, usual | dynamic},
    {33, 48, 64, 128, 8, 1, 3, usual | ping_pong | dynamic},
    {49, 64, 96, 128, 8, 1, 3, usual | ping_pong | ragged},
    {49, 64, 80, 128, 8, 1, 3, usual | ping_pong | dynamic},
    {65, 80, 80, 128, 8, 1, 3, usual | ping_pong | dynamic | full},
    {65, 80, 80, 128, 8, 1, 3, ping_pong | ascending | vectors | dynamic},
    {81, 96, 64, 128, 8, 1, 3, usual | dynamic | masked | anew},
    {81, 96, 64, 128, 8, 1, 3, usual | ping_pong | ragged},
    {81, 96, 80, 128, 8, 1, 2, usual | ping_pong | dynamic},
    {97, 112, 64, 128, 8, 1, 3, usual | ping_pong | scanned | dense},
    {97, 112, 48, 128, 8, 1, 3, usual | ping_pong | dynamic | causal | windows | dense | anew},
    {97, 112, 80, 128, 8, 1, 2, ping_pong | ascending | vectors},
    {113, 128, 48, 128, 8, 1, 3, usual | plain | masked | ragged},
    {113, 128, 48, 128, 8, 1, 3, usual | ping_pong | plain | full | causal},
    {113, 128, 48, 128, 8, 1, 3, usual | ping_pong | looked_up | full},
    {113, 128, 48, 128, 8, 1, 3, usual | scored | causal},
    {113, 128, 64, 128, 8, 1, 2, usual | scored | causal},
    {113, 128, 64, 128, 8, 1, 2, ascending | vectors | dynamic | plain | windows},
    {113, 128, 64, 128, 8, 1, 2, ascending | vectors | masked},
    {129, 144, 80, 128, 8, 1, 3, ping_pong | vectors | dynamic | masked},
    {145, 176, 64, 128, 8, 1, 3, ping_pong | vectors | dynamic | masked},
    {177, 192, 48, 128, 8, 1, 3, ping_pong | vectors | dynamic | masked},
    {129, 144, 80, 128, 8, 1, 3, ping_pong | vectors},
    {145, 176, 64, 128, 8, 1, 3, ping_pong | vectors},
    {177, 192, 48, 128, 8, 1, 3, ping_pong | vectors},
    {1, 96, 64, 128, 8, 1, 3, peel_masks | ping_pong | ascending | dynamic},
    {1, 96, 64, 128, 8, 1, 3, peel_masks | ping_pong | ascending},
    {97, 128, 48, 128, 8, 1, 3, peel_masks | ascending | full},
    {1, 128, 64, 128, 8, 1, 2, ascending},
    {129, 192, 64, 128, 8, 1, 2, ping_pong | dynamic | masked},
    {193, any, 48, 128, 8, 1, 2, ping_pong | dynamic | masked},
    {129, 192, 64, 128, 8, 1, 2, ping_pong},
    {193, any, 48, 128, 8, 1, 2, ping_pong},
    {1, any, 32, 128, 8, 1, 2},
    {129, any, 32, 128, 8, 1, 1},
};
/// 128 rows fit in the registers up to 64 columns, where one copy of the loop masks all tiles. With late products
/// a warpgroup multiplies while the other computes weights, and with three slots the products of an iteration run
/// beside the scores of the next.
constexpr Tiles adding_keys_of_warpgroups[] = {
    {1, 64, 128, 128, 8, 1, 2, ascending | vectors | late | ping_pong | plain | scored | looked_up},
    {1, 64, 128, 128, 8, 1, 2, ascending | vectors | plain | scored | looked_up},
    {65, 128, 64, 128, 8, 1, 2, usual},
    {1, 64, 64, 128, 8, 1, 2, peel_masks | ascending | softcapped | masked},
    {1, 64, 64, 128, 8, 1, 3, peel_masks | ascending},
    {1, 128, 64, 128, 8, 1, 2, peel_masks | ascending},
};
/// Columns, kinds of specs, and the lengths from which five products were faster for them than seven.
struct FasterAdding {
  int least, most;
  unsigned kinds;
  AddingLengths from;
};
constexpr FasterAdding faster_adding[] = {
    {49, 64, plain | scored | full | dense, {.longer = 513, .keys = 512}},
    {49, 64, plain | scored | causal | dense, {.longer = 4097, .keys = 512}},
    {49, 64, softcapped | full | dense, {.longer = 513, .keys = 512}},
    {49, 64, softcapped | causal | dense, {.longer = 2048, .keys = 512}},
};
constexpr Tiles values_of_warpgroups[] = {
    {129, 192, 64, 128, 8, 1, 3, peel_masks | ping_pong | vectors | full},
    {193, any, 64, 128, 8, 1, 2, peel_masks | ping_pong | vectors | full},
    {129, 192, 64, 128, 8, 1, 3, vectors | dynamic | masked},
    {193, any, 64, 128, 8, 1, 2, vectors | dynamic | masked},
    {1, 192, 96, 128, 8, 1, 2, peel_masks | ping_pong | full},
    {193, any, 64, 128, 8, 1, 2, peel_masks | ping_pong | full},
    {1, 192, 96, 128, 8, 1, 2, dynamic | masked},
    {1, 192, 96, 128, 8, 1, 2, masked},
    {193, any, 64, 128, 8, 1, 2, dynamic | masked},
    {1, any, 64, 128, 8, 1, 2},
    {1, any, 32, 128, 8, 1, 2},
};
/// First blocks of one warpgroup, as above. Blocks of two have as many keys as leave three slots, since two
/// iterations in flight hold the keys of both.
constexpr Tiles queries_of_warpgroups[] = {
    {1, 32, 64, 64, 4, 1, 3, usual_keys | softcapped | causal | windows, 3, medium},
    {33, 80, 64, 64, 4, 1, 2, usual_keys | softcapped | causal | windows, 3, medium},
    {81, 96, 64, 64, 4, 1, 3, usual_keys | softcapped | causal | windows, 2, medium},
    {97, 128, 64, 64, 4, 1, 2, usual_keys | softcapped | causal | windows, 2, medium},
    {1, 64, 64, 64, 4, 1, 2, usual_keys | dynamic | timed | windows | scanned, 3},
    {1, 64, 64, 64, 4, 1, 2, usual_keys | dynamic | timed | causal | whole, 3, medium},
    {1, 32, 64, 64, 4, 1, 2, usual_keys | dynamic | timed | causal, 3, brief},
    {33, 64, 64, 64, 4, 1, 2, usual_keys | dynamic | plain | causal, 3, shortest},
    {49, 64, 64, 64, 4, 1, 2, usual_keys | dynamic | scored | causal, 3, brief},
    {1, 32, 64, 64, 4, 1, 3, timed | full | whole, 3, medium},
    {33, 48, 64, 64, 4, 1, 2, timed | full | ragged | whole, 3, shortest},
    {49, 64, 64, 64, 4, 1, 2, dynamic | timed | full | whole, 3, brief},
    {65, 80, 64, 64, 4, 1, 2, usual_keys | timed | full | causal | ragged | whole, 3, brief},
    {65, 80, 64, 64, 4, 1, 2, usual_keys | timed | windows | scanned | ragged, 3, brief},
    {65, 96, 64, 64, 4, 1, 3, usual_keys | plain | scanned | dense, 2},
    {65, 80, 64, 64, 4, 1, 2, usual_keys | timed | windows | dense, 3},
    {65, 80, 64, 64, 4, 1, 2, usual_keys | scored | causal | dense | whole, 3, brief},
    {81, 96, 64, 64, 4, 1, 3, usual_keys | timed | causal | ragged | whole, 2, medium},
    {81, 96, 64, 64, 4, 1, 3, usual_keys | timed | windows | scanned | ragged, 2, medium},
    {81, 96, 64, 64, 4, 1, 3, usual_keys | dynamic | timed | windows | dense, 2},
    {81, 96, 64, 64, 4, 1, 3, usual_keys | dynamic | scored | causal | dense | whole, 2, brief},
    {97, 128, 64, 64, 4, 1, 2, usual_keys | plain | scanned | dense, 2},
    {113, 128, 64, 64, 4, 1, 2, usual_keys | dynamic | scored | causal | dense, 2, brief},
    {65, 80, 64, 64, 4, 1, 2, usual_keys | plain | causal | dense | whole, 3, shortest},
    {81, 96, 64, 64, 4, 1, 3, usual_keys | dynamic | plain | causal | dense | whole, 2, shortest},
    {113, 128, 64, 64, 4, 1, 2, usual_keys | plain | causal | dense | whole, 2, shortest},
    {1, 64, 128, 128, 8, 1, 3, ping_pong | dynamic | full},
    {1, 64, 128, 64, 8, 1, 3, peel_masks | ping_pong | last_tiles_first | softcapped | causal},
    {65, 96, 128, 96, 8, 1, 3, ping_pong | dynamic | full},
    {65, 96, 128, 96, 8, 1, 3,
     peel_masks | ping_pong | last_tiles_first | dynamic | persistent_masked},
    {97, 128, 128, 64, 8, 1, 3, persistent | ping_pong | full},
    {97, 112, 128, 80, 8, 1, 3,
     peel_masks | ping_pong | last_tiles_first | dynamic | persistent_masked},
    {113, 128, 128, 80, 8, 1, 3, peel_masks | last_tiles_first | dynamic | persistent_masked},
    {129, 192, 128, 64, 8, 1, 2, persistent | ping_pong | full},
    {193, any, 128, 48, 8, 1, 2, persistent | ping_pong | full},
    {129, 192, 128, 64, 8, 1, 2,
     peel_masks | ping_pong | last_tiles_first | dynamic | persistent_masked},
    {193, any, 128, 48, 8, 1, 2,
     peel_masks | ping_pong | last_tiles_first | dynamic | persistent_masked},
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

/// The kind of a spec's mask, those of its score and of its sequences, and whether it is `whole`.
unsigned kinds_of(const SpecTraits& of) {
  const AttentionSpec& spec = of.spec;
  const unsigned mask = of.mask.is_full()        ? full
                        : !of.mask.bounds_loop() ? scanned
                        : of.mask.several()      ? windows
                                                 : causal;
  const unsigned score = spec.score.text.empty() ? plain
                         : of.score.softcap      ? softcapped
                         : of.score.looks_up     ? looked_up
                                                 : scored;
  const bool fills = std::max(spec.head_dim, spec.value_dim()) % 16 == 0;
  return mask | score | (fills ? whole : 0) |
         (spec.packed() || spec.q_lens || spec.kv_lens ? ragged : dense);
}

/// Whether a row of a table with these traits is for a spec of these kinds.
bool is_for(unsigned traits, unsigned kinds) {
  return std::ranges::all_of(std::array{masks, scores, sequences, 0U + whole}, [&](unsigned group) {
    return !(traits & group) || (traits & group & kinds);
  });
}

/// Tiles with the dynamic scheduler were timed without it for all kinds that cannot have it but scores that
/// read tensors.
bool are_for(const Tiles& tiles, unsigned kinds) {
  return is_for(tiles.traits, kinds) && !((kinds & looked_up) && (tiles.traits & dynamic));
}

/// Which schedulers of tiles blocks can have: a set of `persistent` and `dynamic`. Blocks of ragged
/// sequences would have to find their segments for every output tile; a softcap, lookups and a scan for
/// visible tiles leave no register for the number of the tile that the dynamic scheduler hands out.
unsigned schedulers_of(unsigned kinds) {
  if (kinds & ragged) return 0;
  if (kinds & (softcapped | looked_up | scanned)) return persistent;
  return persistent | dynamic;
}

Schedule schedule_of(const Tiles& tiles, unsigned schedulers, const AttentionSpec& spec,
                     const Target& target, bool of_warpgroups) {
  const unsigned scheduler = tiles.traits & schedulers;
  Schedule s;
  if (of_warpgroups)
    s = warpgroup_tiles(tiles.rows, tiles.cols);
  else
    choose_family(s, target);
  s.tiles = {{"rows", tiles.rows}, {"cols", tiles.cols}};
  s.warps_m = tiles.warps_m;
  s.warps_n = tiles.warps_n;
  s.stages = tiles.stages;
  s.blocks_per_processor = tiles.blocks;
  if (tiles.warps_n > 1 && target.mma_m16n8k16) s.product_split = ProductSplit::columns;
  s.peel_masks = tiles.traits & peel_masks;
  s.ping_pong = tiles.traits & ping_pong;
  s.load_vectors = tiles.traits & vectors;
  s.keep_operands = tiles.traits & kept;
  s.keep_addresses = !(tiles.traits & anew);
  s.late_products = tiles.traits & late;
  s.descending = !(tiles.traits & ascending);
  s.persistent = scheduler != 0;
  if (scheduler & dynamic) {
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

std::optional<AddingLengths> adding_lengths(const AttentionSpec& spec, const Target& target) {
  if (spec.deterministic || !target.wgmma) return {};
  const int columns = round_up(widest(spec));
  const unsigned kinds = kinds_of(SpecTraits(spec));
  for (const FasterAdding& faster : faster_adding)
    if (faster.least <= columns && columns <= faster.most && is_for(faster.kinds, kinds))
      return faster.from;
  return {};
}

std::vector<std::int64_t> backward_length_bounds() {
  std::set<std::int64_t> bounds;
  for (const ProductTiles& own : products)
    for (const Tiles& tiles : own.of_warpgroups) bounds.insert(tiles.longest);
  return {bounds.begin(), bounds.end()};
}

std::vector<Schedule> attention_backward_schedules(std::string_view program,
                                                   const AttentionSpec& spec, const Target& target,
                                                   std::int64_t length) {
  const auto* const own = std::ranges::find(products, program, &ProductTiles::program);
  if (own == std::end(products))
    return elementwise(spec, target, program == "attention_backward_groups" ? "cols" : "rows");
  std::vector<Schedule> schedules;
  const int columns = round_up(widest(spec));
  const unsigned kinds = kinds_of(SpecTraits(spec)), schedulers = schedulers_of(kinds);
  const auto add = [&](std::span<const Tiles> table, bool of_warpgroups) {
    for (const Tiles& tiles : table) {
      if (columns < tiles.least || tiles.most < columns || tiles.longest < length) continue;
      if (!are_for(tiles, kinds)) continue;
      const Schedule s = schedule_of(tiles, schedulers, spec, target, of_warpgroups);
      if (std::ranges::find(schedules, s) == schedules.end()) schedules.push_back(s);
    }
  };
  if (target.wgmma) add(own->of_warpgroups, true);
  add(target.mma_m16n8k16 ? own->of_warps : own->of_blocks, false);
  return schedules;
}

}  // namespace flashcore
