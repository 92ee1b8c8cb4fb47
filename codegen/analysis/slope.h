// Whether numbers rise or fall with a position.
#pragma once

#include <functional>
#include <optional>

#include "dsl/ir/function.h"

namespace flashcore {

/// 1 or -1: rises or falls with the position, though it may stay the same in between; 0: does not
/// depend on it; none: not known.
using Slope = std::optional<int>;

/// Of what an op makes of operands with such slopes.
Slope slope_of(const ir::Function& f, const ir::Op& op,
               const std::function<Slope(ir::ValueId)>& of_operand);

/// Of an i32 scalar, with the position of the block's tile along a parallel axis.
Slope slope_along(const ir::Function& f, ir::ValueId value, ir::AxisId axis);

}  // namespace flashcore
