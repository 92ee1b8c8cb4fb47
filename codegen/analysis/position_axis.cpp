#include "codegen/analysis/position_axis.h"

#include <algorithm>

#include "codegen/analysis/visit.h"

namespace flashcore {

using namespace ir;

AxisId last_position_axis(const Function& f) {
  for (std::size_t i = f.axes.size(); i-- > 0;)
    if (f.axes[i].kind == AxisKind::parallel) return AxisId(i);
  return {};
}

bool asks_for_position(const Function& f, const Op& op, AxisId axis) {
  const auto asks = [&](const Op& one) {
    return (one.code == OpCode::index && one.axis == axis) ||
           std::any_of(one.coordinates.begin(), one.coordinates.end(),
                       [&](const Coordinate& c) { return c.axis == axis; });
  };
  return any_op_of(f, op, asks);
}

}  // namespace flashcore
