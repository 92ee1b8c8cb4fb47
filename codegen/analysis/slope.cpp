#include "codegen/analysis/slope.h"

#include <algorithm>
#include <vector>

#include "codegen/passes/rewrite.h"

namespace flashcore {

using namespace ir;

namespace {

Slope negated(Slope a) { return a ? std::optional(-*a) : a; }

Slope together(Slope a, Slope b) {
  if (!a || !b || *a * *b < 0) return std::nullopt;
  return *a ? a : b;
}

}  // namespace

Slope slope_of(const Function& f, const Op& op, const std::function<Slope(ValueId)>& of_operand) {
  std::vector<Slope> operands;
  for (ValueId operand : op.operands) operands.push_back(of_operand(operand));
  if (op.code == OpCode::constant) return 0;
  if (kind_of(op.code) != OpKind::elementwise) return std::nullopt;
  if (std::ranges::all_of(operands, [](Slope slope) { return slope == 0; })) return 0;
  const auto scaled = [&](std::size_t value, std::size_t by) -> Slope {
    const ValueId factor = op.operands[by];
    if (is_positive_scalar(f, factor)) return operands[value];
    const double* constant = constant_of(f, factor);
    return constant && *constant < 0 ? negated(operands[value]) : std::nullopt;
  };
  const auto product = [&] {
    const Slope right = scaled(0, 1);
    return right ? right : scaled(1, 0);
  };
  switch (op.code) {
    case OpCode::cast:
      return operands[0];
    case OpCode::neg:
      return negated(operands[0]);
    case OpCode::add:
    case OpCode::min:
    case OpCode::max:
      return together(operands[0], operands[1]);
    case OpCode::sub:
      return together(operands[0], negated(operands[1]));
    case OpCode::mul:
      return product();
    case OpCode::fma:
      return together(product(), operands[2]);
    case OpCode::div:
    case OpCode::quotient:
      return is_positive_scalar(f, op.operands[1]) ? operands[0] : std::nullopt;
    default:
      return std::nullopt;
  }
}

Slope slope_along(const Function& f, ValueId value, AxisId axis) {
  const Op* op = f.definition(value);
  if (!op) return std::nullopt;
  if (op->code == OpCode::index || op->code == OpCode::tile_begin) {
    const AxisKind kind = f[op->axis].kind;
    if (op->axis == axis) return 1;
    const bool fixed = kind == AxisKind::parallel || kind == AxisKind::parallel_tiles;
    return fixed ? Slope(0) : std::nullopt;
  }
  if (kind_of(op->code) == OpKind::source) return 0;
  return slope_of(f, *op, [&](ValueId operand) { return slope_along(f, operand, axis); });
}

}  // namespace flashcore
