// Channels of loads, which bring operands of products to shared memory ahead of the iteration that
// uses them.
#pragma once

#include "dsl/ir/function.h"

namespace flashcore {

/// Whether an op is a load into shared memory.
bool is_copied(const ir::Function& f, const ir::Op& op);

/// A channel, which is still to be added, with `stages` slots for the tile of a load.
ir::Buffer channel_for(const ir::Function& f, const ir::Op& load, ir::Transport transport,
                       int stages);

/// Loads of a loop that stands inside another loop cannot be issued ahead.
[[noreturn]] void refuse_inner_loop(const ir::Function& f, const ir::Op& loop);

}  // namespace flashcore
