// The computed positions of a load that becomes an issue.
#pragma once

#include <functional>

#include "dsl/ir/function.h"

namespace flashcore {

/// Gives an issue the coordinates of a load. Where positions are computed, the issue gets a region
/// with a copy of what computes them, since they are asked for a tile that is not the current one.
/// The copy engine takes a box (`as_box`): for it the region computes where the first row lies, and
/// the scalar positions that are made in the loop. Throws SpecError where the rows lie in no box.
/// `made_inside` says of a value whether it is made in the loop around the load: scalars from
/// outside are read as they are.
void issue_positions(ir::Function& f, ir::Op& issue, const ir::Op& load, bool as_box,
                     const std::function<bool(ir::ValueId)>& made_inside);

}  // namespace flashcore
