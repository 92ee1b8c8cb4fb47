// The derivative of one tile by another, as operations of the same program.
#pragma once

#include "dsl/tile.h"

namespace flashcore {

/// d value / d by, element by element (forward mode), for a value that elementwise operations make
/// of `by`, an f32 tile; other reads of `by`, such as reductions, are not followed. Appends its
/// operations to the program. Where a function has no derivative it is that of one side: of
/// maximum(a, b) and minimum(a, b) at a == b that of a, of abs(a) at 0 that of a. Conditions,
/// floor, round and positions that a gather reads do not change with `by`. A value that does not
/// depend on it has the derivative 0, a scalar.
Tile derivative(const Tile& value, const Tile& by);

}  // namespace flashcore
