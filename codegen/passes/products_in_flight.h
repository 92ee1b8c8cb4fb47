// The steps of overlap_products.
#pragma once

#include <vector>

#include "codegen/analysis/product_cut.h"
#include "dsl/ir/function.h"
#include "dsl/schedule.h"

namespace flashcore {

/// Makes a wait for issued products, which stands in no block yet; readers of their sums read its
/// results instead. It leaves up to `pending` groups in flight.
ir::OpId wait_products(ir::Function& f, const std::vector<ir::ValueId>& sums, int pending);

/// Two products in flight while an iteration of the loop, which stands in `block`, computes.
void rotate_loop(ir::Function& f, const Schedule& schedule, ir::BlockId block, ir::OpId loop,
                 const ProductCut& cut);

/// Behind the wait for the last product of a block that reads a slot; behind the loop, if that is
/// inside one. In a loop over tiles a ring's only slot is released inside both regions of an `if`
/// that reads it.
void release_slots(ir::Function& f, ir::BlockId block, bool has_next_tiles = false);

}  // namespace flashcore
