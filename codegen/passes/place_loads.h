// The first step of infer_layouts: which memory space a loaded tile is brought to.
#pragma once

#include "dsl/ir/function.h"

namespace flashcore {

/// Brings operands of products and what is converted to shared memory, and everything else to
/// registers. A load that feeds a product and something else becomes two. Positions and constants
/// take the layout of who reads them; a reduction and a store have none to give, so that what they
/// read becomes a tile of its own.
void place_loads(ir::Function& f);

}  // namespace flashcore
