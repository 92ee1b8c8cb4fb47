// What the warps along the columns of a product share out: its columns, or the terms of its sum.
#pragma once

#include "dsl/ir/function.h"
#include "dsl/schedule.h"

namespace flashcore {

/// Whether the terms lie in different warps: where the left operand is computed in registers, its
/// columns do.
bool cuts_sum(const ir::Function& f, const ir::Op& dot, const Schedule& schedule);

}  // namespace flashcore
