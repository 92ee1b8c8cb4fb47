// What a loop carries from iteration to iteration: maxima, sums, and sums that are rescaled as a
// maximum grows; and whether its result is independent of the order of its iterations.
#pragma once

#include <optional>
#include <vector>

#include "dsl/ir/function.h"

namespace flashcore {

struct CarriedValue {
  ir::OpCode extreme{};  ///< max or min; else it is a sum
  /// Of a sum that is scaled: the factor, g(old, new) = exp2(h(old) - h(new)); which carried value
  /// it follows; that one before an iteration and behind it. What an iteration adds is a multiple
  /// of exp2(-h(new)).
  ir::ValueId factor;
  std::size_t follows = 0;
  ir::ValueId old_extreme, new_extreme;
  std::optional<double> slope;  ///< where h(m) = slope * m with a known number

  [[nodiscard]] bool is_extreme() const {
    return extreme == ir::OpCode::max || extreme == ir::OpCode::min;
  }
};

/// By carried value; nothing where it is none of these, so that the order of the iterations may
/// matter.
using CarriedValues = std::vector<std::optional<CarriedValue>>;

CarriedValues carried_values(const ir::Function& f, const ir::Op& loop);

/// False only where the program says that order does not matter, or it is known: the loop carries
/// maxima, sums, and sums scaled as a maximum grows, and what an iteration stores is the
/// iteration's own. A moving average, or a running sum that every iteration stores, depends on the
/// order.
bool order_matters(const ir::Function& f, const ir::Op& loop);

}  // namespace flashcore
