// Tiles of the programs of attention's backward pass, as tables: for each program those of warpgroups,
// of warps and of opaque blocks, the best first. Tiles that do not fit are refused, and the next are
// taken.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "templates/attention_backward.h"

namespace flashcore::backward_tiles {

enum Trait : unsigned {
  // For which specs a row of a table is: those of the kinds that it names, where it names any.
  full = 1U << 0,     ///< masks that hide nothing
  causal = 1U << 1,   ///< those of one condition that bounds the loop
  windows = 1U << 2,  ///< of several such conditions
  scanned = 1U << 3,  ///< others: a block scans for the tiles that it visits
  plain = 1U << 4,    ///< without a score expression
  softcapped = 1U << 5,
  looked_up = 1U << 6,  ///< threads look up an element for each score, as of a relative bias
  scored = 1U << 7,     ///< with any other score expression
  dense = 1U << 8,
  ragged = 1U << 9,  ///< packed or padded sequences
  /// With head_dims that are multiples of 16. Rows of others begin within sectors of L2, and for most of them
  /// tiles of one warpgroup, which read L2 twice as often, were slower.
  whole = 1U << 10,
  // What its schedule has.
  peel_masks = 1U << 11,
  ping_pong = 1U << 12,
  ascending = 1U << 13,
  persistent = 1U << 14,
  last_tiles_first = 1U << 15,  ///< under a mask
  /// Where blocks may be persistent: the dynamic tile scheduler, with heads grouped for L2.
  dynamic = 1U << 16,
  vectors = 1U << 17,  ///< of the loop's axis come with its tiles
  kept = 1U << 18,     ///< left operands stay in registers
  anew = 1U << 19,     ///< addresses of outputs are computed anew for each output tile
  late = 1U << 20,  ///< products behind which an iteration computes nothing run beside the next one
};
inline constexpr unsigned masks = full | causal | windows | scanned;
inline constexpr unsigned scores = plain | softcapped | scored | looked_up,
                          sequences = dense | ragged, widths = whole;

inline constexpr int any = any_length;  ///< columns, rows or keys

/// Tiles for queries and values of up to so many columns.
struct Tiles {
  int least, most;
  int rows, cols, warps_m, warps_n, stages;
  unsigned traits = 0;
  int blocks = 1;              ///< that a multiprocessor holds at once
  std::int64_t longest = any;  ///< for sequences of up to so many rows and keys
};

/// Columns, kinds of specs, and the lengths from which five products were faster for them than seven.
struct FasterAdding {
  int least, most;
  unsigned kinds;
  AddingLengths from;
};

/// What programs with products have, by their names: the tiles of warpgroups, of warps and of blocks.
struct ProductTiles {
  std::string_view program;
  std::span<const Tiles> of_warpgroups, of_warps, of_blocks;
};

std::span<const ProductTiles> product_tiles();
std::span<const FasterAdding> faster_adding();

}  // namespace flashcore::backward_tiles
