// The tiles that a loop visits, as numbers in front of it and inside; and a loop whose first
// iteration comes apart:
//
//   %first = the first tile ; %any = whether there is one
//   if %any { enter %first ; ... ; loop over the other tiles }
#pragma once

#include "dsl/ir/builder.h"
#include "dsl/ir/function.h"

namespace flashcore {

struct LoopTiles {
  ir::ValueId begin, end;
  ir::BufferId scan;  ///< which of them it visits; none: all
  bool descending = false;

  LoopTiles() = default;
  /// Of a loop that stands where the builder does, or behind.
  LoopTiles(ir::Builder& b, const ir::Op& loop);

  /// The tile that the loop visits behind another, of those that a scan found.
  ir::ValueId scanned_behind(ir::Builder& b, ir::ValueId tile) const;
  /// The tile that the loop visits so many iterations behind another.
  ir::ValueId behind(ir::Builder& b, ir::ValueId tile, int iterations = 1) const;
  /// The number of a tile from which the loop's first one is the next.
  [[nodiscard]] ir::ValueId in_front(ir::Builder& b) const;
  /// Whether the loop has not come to its end with a tile.
  ir::ValueId exists(ir::Builder& b, ir::ValueId tile) const;
};

struct FirstTile {
  ir::ValueId tile;    ///< its number
  ir::ValueId exists;  ///< whether the loop has a tile at all
};

/// The first tile that the loop visits, computed where the builder stands.
FirstTile first_tile_of(ir::Builder& b, const ir::Op& loop);

/// Lets what follows in the block be at a tile of the loop's axis.
void enter_tile(ir::Builder& b, const ir::Op& loop, ir::ValueId tile);

/// The loop without `tile`, its first one, and without what it carries: its bounds are computed where
/// the builder stands.
ir::Op loop_behind_first(ir::Builder& b, ir::Op loop, ir::ValueId tile);

}  // namespace flashcore
