// Facts about numbers computed from positions and lengths: conditions that hold within an axis
// only, as a causal mask does that is aligned to the last key, and differences that stay in a
// range; and whether what lies beyond an axis comes into a sum.
#pragma once

#include "dsl/ir/function.h"

namespace flashcore {

/// Whether a condition fails at every position beyond the end of `axis`, whatever tiles of rows
/// there are: positions of the other axes count as far as these go.
bool fails_beyond(const ir::Function& f, ir::ValueId condition, ir::AxisId axis);

/// Whether the number less any position of `axis` is an i32: it is of about one length at most,
/// whichever way.
bool leaves_room(const ir::Function& f, ir::ValueId number, ir::AxisId axis);

/// Whether a sum takes in the rows of a loaded tile that lie beyond its first axis: a product that
/// sums over these rows, or one of whose result they are columns, if a sum along them follows and
/// no mask has hidden them before. The copy engine, which knows where the tensor ends, brings rows
/// of another sequence or of none there, and a zero does not silence a NaN.
bool sums_rows_beyond_axis(const ir::Function& f, ir::ValueId tile);

}  // namespace flashcore
