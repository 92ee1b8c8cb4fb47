// Whether the result of a loop is independent of the order of its iterations.
#pragma once

#include "dsl/ir/function.h"

namespace flashcore {

/// False only where the program says that order does not matter, or it is known: the loop carries
/// maxima, sums, and sums scaled as a maximum grows, and what an iteration stores is the
/// iteration's own. A moving average, or a running sum that every iteration stores, depends on the
/// order.
bool order_matters(const ir::Function& f, const ir::Op& loop);

}  // namespace flashcore
