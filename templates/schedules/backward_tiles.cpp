// Those for wgmma were measured on one H200 (docs/performance_hopper.md); the others keep what
// FlashAttention-2's tiles keep in registers.
#include "templates/schedules/backward_tiles.h"

namespace flashcore::backward_tiles {
namespace {

/// Lengths up to which tiles of one warpgroup were measured to be faster: they read L2 twice as often.
constexpr std::int64_t shortest = 512, brief = 4096, medium = 8192;

constexpr unsigned masked = masks & ~full;
/// Masked specs whose blocks may be persistent.
constexpr unsigned persistent_masked = dense | causal | windows | plain | scored;

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
/// Where five products were faster than seven.
constexpr FasterAdding faster[] = {
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

constexpr ProductTiles products[] = {
    {"attention_backward_keys", keys_of_warpgroups, keys_of_warps, keys_of_blocks},
    {"attention_backward_adding_keys", adding_keys_of_warpgroups, keys_of_warps, keys_of_blocks},
    {"attention_backward_values", values_of_warpgroups, keys_of_warps, keys_of_blocks},
    {"attention_backward_queries", queries_of_warpgroups, queries_of_warps, queries_of_blocks},
};

}  // namespace

std::span<const ProductTiles> product_tiles() { return products; }

std::span<const FasterAdding> faster_adding() { return faster; }

}  // namespace flashcore::backward_tiles
