// The masks of a loop: which conditions they test, and whether they bound the loop or need a scan.
#pragma once

#include <vector>

#include "dsl/ir/affine.h"
#include "dsl/ir/function.h"

namespace flashcore {

struct LoopMask {
  ir::OpId where;
  /// The linear terms of its condition that bound the loop; `complete`: there is nothing else in
  /// it.
  AffineCondition condition;
  bool skips = false;      ///< a tile on which it holds nowhere changes nothing
  bool droppable = false;  ///< where it holds, the unmasked tile can stand in for the masked one
};

/// Whether a condition consists of linear conditions that all bound the tiles that the loop visits:
/// they say something about the loop's axis, and are known in front of the loop.
bool bounds_loop(const ir::Function& f, const ir::Op& loop, ir::ValueId condition);

/// Every `where` of the loop's region on tiles of its axis whose condition is not made by the loop
/// itself.
std::vector<LoopMask> loop_masks(const ir::Function& f, const ir::Op& loop);

/// What two terms that hold for the same row say together about the loop's axis alone: one bounds
/// the row from below and the other from above, so that what is between must not be empty.
std::vector<AffineForm> without_rows(const ir::Function& f, const std::vector<AffineForm>& terms);

}  // namespace flashcore
