// The steps of overlap_products.
#pragma once

#include <vector>

#include "codegen/analysis/product_stages.h"
#include "dsl/ir/function.h"
#include "dsl/schedule.h"

namespace flashcore {

/// Makes a wait, which stands in no block yet, for started products. Up to `pending` later ones may
/// be unfinished behind it.
ir::OpId wait_products(ir::Function& f, const std::vector<ir::ValueId>& sums, int pending);

/// What a step of a pipelined loop does next.
struct StepOp {
  enum class Kind { op, wait, turn } kind;
  std::vector<ir::OpId> ops;  ///< one of the loop's body, or the products that have finished
  int pending = 0;            ///< wait: how many products behind them may not have
  ir::OpCode turn{};          ///< turn: ping_pong_wait or ping_pong_arrive
};

/// What the stages from `first` to `last` do: products are issued as early as they can be, those of
/// the first stage in front, and waited for where something reads what they make or overwrites what
/// they read. With `turns` warpgroups take turns to issue.
std::vector<StepOp> order_step(const ir::Function& f, const ir::Op& loop,
                               const ProductStages& stages, int first, int last, bool turns);

/// Puts a software pipeline in the place of a loop that stands in `block`.
void pipeline_loop(ir::Function& f, const Schedule& schedule, ir::BlockId block, ir::OpId loop,
                   const ProductStages& stages);

/// Behind the wait for the last product of a block that reads a slot; behind the loop, if that is
/// inside one. In a loop over tiles a ring's only slot is released inside both regions of an `if`
/// that reads it.
void release_slots(ir::Function& f, ir::BlockId block, bool has_next_tiles = false);

}  // namespace flashcore
