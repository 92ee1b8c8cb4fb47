// The order in which a step of a pipelined loop does the stages of the iterations in flight.
#pragma once

#include <vector>

#include "codegen/analysis/product_stages.h"

namespace flashcore {

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

}  // namespace flashcore
