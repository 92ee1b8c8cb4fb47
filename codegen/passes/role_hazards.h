// The part of insert_barriers that is about the inside of a role.
#pragma once

#include <set>

#include "dsl/ir/function.h"

namespace flashcore {

/// Buffers that the copy engine or products in flight read: what threads write there they fence.
std::set<ir::BufferId> read_asynchronously(const ir::Function& f);

/// Puts fences and meetings into a role, and checks what its waits are there for.
void order_role(ir::Function& f, ir::OpId role, const std::set<ir::BufferId>& asynchronous);

}  // namespace flashcore
