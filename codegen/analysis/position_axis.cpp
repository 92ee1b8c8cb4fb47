#include "codegen/analysis/position_axis.h"

#include <algorithm>

#include "codegen/analysis/visit.h"
#include "codegen/passes/rewrite.h"

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

namespace {

Trend opposite(Trend trend) {
  if (trend == Trend::rising) return Trend::falling;
  return trend == Trend::falling ? Trend::rising : trend;
}

Trend together(Trend a, Trend b) {
  if (a == Trend::constant) return b;
  return b == Trend::constant || a == b ? a : Trend::unknown;
}

}  // namespace

Trend trend_along(const Function& f, ValueId value, AxisId axis) {
  const Op* op = f.definition(value);
  if (!op || op->body) return Trend::unknown;
  const auto of = [&](std::size_t i) { return trend_along(f, op->operands[i], axis); };
  const auto scaled = [&](std::size_t i, std::size_t by) {
    const double* factor = constant_of(f, op->operands[by]);
    if (!factor)
      return together(of(i), of(by)) == Trend::constant ? Trend::constant : Trend::unknown;
    return *factor >= 0 ? of(i) : opposite(of(i));
  };
  switch (op->code) {
    case OpCode::index:
    case OpCode::tile_begin:
      return op->axis == axis ? Trend::rising
             : f[op->axis].kind == AxisKind::parallel ||
                     f[op->axis].kind == AxisKind::parallel_tiles
                 ? Trend::constant
                 : Trend::unknown;
    case OpCode::add:
    case OpCode::min:
    case OpCode::max:
      return together(of(0), of(1));
    case OpCode::sub:
      return together(of(0), opposite(of(1)));
    case OpCode::mul:
      return constant_of(f, op->operands[0]) ? scaled(1, 0) : scaled(0, 1);
    case OpCode::div:
    case OpCode::quotient:
      return scaled(0, 1);
    default: {
      if (kind_of(op->code) == OpKind::source) return Trend::constant;
      if (kind_of(op->code) != OpKind::elementwise) return Trend::unknown;
      for (std::size_t i = 0; i < op->operands.size(); ++i)
        if (of(i) != Trend::constant) return Trend::unknown;
      return Trend::constant;
    }
  }
}

}  // namespace flashcore
