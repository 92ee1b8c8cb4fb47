// A loop whose first round comes apart: `once { first round ; loop over the other tiles }`.
#pragma once

#include <vector>

#include "dsl/ir/function.h"

namespace flashcore {

/// Bounds of the loop without `tile`, its first one, computed at the end of `block`: as many as it
/// has, or two if it has none.
std::vector<ir::ValueId> bounds_behind_first(ir::Function& f, ir::BlockId block, const ir::Op& loop,
                                             ir::ValueId tile);

}  // namespace flashcore
