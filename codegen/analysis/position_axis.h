// The axis whose positions a block may compute one after the other, and how a number depends on which
// tile of an axis a block has.
#pragma once

#include <cstdint>

#include "dsl/ir/function.h"

namespace flashcore {

/// The last parallel axis that is not cut into tiles, as attention's heads are; none if there is no
/// such axis.
ir::AxisId last_position_axis(const ir::Function& f);

/// Whether the op, or one in its region, asks where a block lies along the axis.
bool asks_for_position(const ir::Function& f, const ir::Op& op, ir::AxisId axis);

enum class Trend : std::uint8_t { constant, rising, falling, unknown };

/// Whether an i32 scalar grows, or falls, with the position of the block's tile along a parallel
/// axis; staying the same in between is both.
Trend trend_along(const ir::Function& f, ir::ValueId value, ir::AxisId axis);

}  // namespace flashcore
