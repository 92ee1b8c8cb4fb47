// What lies in the rows of a loaded tile beyond a ragged axis, and whether it comes into a sum.
#pragma once

#include "dsl/ir/function.h"

namespace flashcore {

/// Whether a sum takes in the rows of a loaded tile that lie beyond its first axis: a product that
/// sums over these rows, or one of whose result they are columns, if a sum along them follows and
/// no mask has hidden them before. The copy engine, which knows where the tensor ends, brings rows
/// of another sequence or of none there, and a zero does not silence a NaN.
bool sums_rows_beyond_axis(const ir::Function& f, ir::ValueId tile);

}  // namespace flashcore
