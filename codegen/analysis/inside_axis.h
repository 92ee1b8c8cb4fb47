// Conditions on positions that keep within an axis by themselves, as a causal mask does that ends at the last key.
#pragma once

#include "dsl/ir/function.h"

namespace flashcore {

/// Whether a condition fails at every position beyond the end of `axis`, whatever tiles of rows there are: positions
/// of the other axes count as far as these go.
bool fails_beyond(const ir::Function& f, ir::ValueId condition, ir::AxisId axis);

}  // namespace flashcore
