// Where the computed operands of a product lie, and what follows for the warps along its columns.
//
// A right operand goes through shared memory, because every warp along the rows reads all of it. A
// left operand may stay in registers: the accumulator layout, packed in pairs, is the layout of a
// left operand, and each warp has the rows that it multiplies. Two things speak against registers:
// the warps along the columns hold different columns of the tile (then each would multiply its own,
// and the warps divide the terms of the sum among them instead of the columns of the result), and
// an operand that is made once and read in every iteration of a loop takes registers all the while.
#pragma once

#include "dsl/ir/function.h"
#include "dsl/schedule.h"

namespace flashcore {

/// What a chain of transposes is of, and whether their number is odd.
struct OperandRoot {
  ir::ValueId value;
  bool transposed = false;
};
OperandRoot operand_root(const ir::Function& f, ir::ValueId operand);

/// The block in which a value is made: by an op, or as an argument of the region.
ir::BlockId block_of(const ir::Function& f, ir::ValueId value);

/// Whether operand `k` (0 or 1) of a product is computed and goes through shared memory.
bool goes_through_shared(const ir::Function& f, const ir::Op& dot, std::size_t k,
                         const Schedule& schedule);

/// Whether the terms of a product's sum lie in different warps: where its left operand is computed
/// in registers and several warps hold different columns of it.
bool cuts_sum(const ir::Function& f, const ir::Op& dot, const Schedule& schedule);

}  // namespace flashcore
