// The axis whose positions a block may compute one after the other.
#pragma once

#include "dsl/ir/function.h"

namespace flashcore {

/// The last parallel axis that is not cut into tiles, as attention's heads are; none if there is no
/// such axis.
ir::AxisId last_position_axis(const ir::Function& f);

/// Whether the op, or one in its region, asks where a block lies along the axis.
bool asks_for_position(const ir::Function& f, const ir::Op& op, ir::AxisId axis);

}  // namespace flashcore
