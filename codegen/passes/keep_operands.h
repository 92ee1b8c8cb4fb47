// Left operands of a loop's products that are loaded in front of it, and stay in registers instead
// of being read from shared memory in every iteration.
#pragma once

#include <vector>

#include "dsl/ir/builder.h"
#include "dsl/ir/function.h"

namespace flashcore {

/// The left operands in shared memory that the loop does not make.
std::vector<ir::ValueId> left_operands_of_loop(const ir::Function& f, const ir::Op& loop);

/// Reads one into registers, where the products of the loop take it from.
void keep_left_operand(ir::Builder& b, const ir::Op& loop, ir::ValueId operand);

}  // namespace flashcore
