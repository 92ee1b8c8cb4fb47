// Left operands of products that a loop does not change. They move from shared memory into registers
// in front of it, instead of being read from shared memory in every iteration:
//
//   loop cols { %s = dot %query, %key }    ->    %q = convert %query      to registers
//                                                loop cols { %s = dot %q, %key }
#pragma once

#include <functional>

#include "codegen/passes/rewrite.h"

namespace flashcore {

/// `b` stands in front of the loop; `wait` is called in front of the first conversion. True if there
/// is one.
bool keep_left_operands(ir::Builder& b, const ir::Op& loop, const std::function<void()>& wait = {});

}  // namespace flashcore
