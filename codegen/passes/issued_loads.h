// Loads that are issued ahead of the iteration that uses them: their channels, which bring operands
// of products to shared memory, and the positions that they are asked for.
#pragma once

#include <functional>

#include "dsl/ir/function.h"

namespace flashcore {

/// Whether an op is a load into shared memory.
bool is_copied(const ir::Function& f, const ir::Op& op);

/// A channel, which is still to be added, with `stages` slots for the tile of a load.
ir::Buffer channel_for(const ir::Function& f, const ir::Op& load, ir::Transport transport,
                       int stages);

/// Loads of a loop that stands inside another loop cannot be issued ahead.
[[noreturn]] void refuse_inner_loop(const ir::Function& f, const ir::Op& loop);

/// Gives an issue the coordinates of a load. Where positions are computed, the issue gets a region
/// with a copy of what computes them, since they are asked for a tile that is not the current one.
/// The copy engine takes a box (`as_box`), or several: for it the region computes where the first row
/// of each lies, and the scalar positions that are made in the loop. Throws SpecError where the rows lie
/// in no boxes.
/// `made_inside` says of a value whether it is made in the loop around the load: scalars from
/// outside are read as they are.
void issue_positions(ir::Function& f, ir::Op& issue, const ir::Op& load, bool as_box,
                     const std::function<bool(ir::ValueId)>& made_inside);

}  // namespace flashcore
