#include "codegen/analysis/value_bounds.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <numbers>

#include "codegen/analysis/visit.h"

namespace flashcore {
namespace {

using namespace ir;

constexpr Bounds anything{-INFINITY, INFINITY, true};

Bounds point(double number) {
  if (std::isinf(number) && number < 0)
    return {INFINITY, -INFINITY, true};  // nothing but what is hidden
  return {number, number, false};
}

bool is_empty(const Bounds& b) { return b.low > b.high; }

Bounds negate(const Bounds& a) { return a.hides ? anything : Bounds{-a.high, -a.low, false}; }

/// Sums of finite bounds; minus infinity stays what it is beside anything finite.
Bounds add(const Bounds& a, const Bounds& b) {
  if (is_empty(a)) return b.finite() ? a : anything;
  if (is_empty(b)) return a.finite() ? b : anything;
  if (!a.finite() || !b.finite()) return anything;
  return {a.low + b.low, a.high + b.high, a.hides || b.hides};
}

Bounds multiply(const Bounds& a, const Bounds& b) {
  const Bounds &x = b.hides ? b : a, &y = b.hides ? a : b;
  // Minus infinity stays what it is times something above zero.
  if (y.hides || !y.finite() || (x.hides && !(y.low > 0))) return anything;
  if (is_empty(x)) return x;
  if (!x.finite()) return anything;
  const std::initializer_list<double> corners{x.low * y.low, x.low * y.high, x.high * y.low,
                                              x.high * y.high};
  return {std::min(corners), std::max(corners), x.hides};
}

}  // namespace

bool Bounds::finite() const { return std::isfinite(low) && std::isfinite(high); }

double Bounds::magnitude() const {
  return finite() ? std::max(std::abs(low), std::abs(high)) : INFINITY;
}

Bounds ValueBounds::of(ValueId value) {
  return remembered(known_, value,
                    [&] { return f_[value].type.dtype == DType::f32 ? derive(value) : anything; });
}

Bounds ValueBounds::derive(ValueId value) {
  const Op* op = f_.definition(value);
  if (!op) return anything;
  const auto operand = [&](std::size_t i) { return of(op->operands[i]); };
  switch (op->code) {
    case OpCode::constant:
      return point(op->number);
    case OpCode::reduce_max:
    case OpCode::reduce_min:
      return operand(0);
    case OpCode::tanh:
    case OpCode::sin:
    case OpCode::cos:
    case OpCode::erf:
      return {-1, 1, false};
    case OpCode::atan:
      return {-std::numbers::pi / 2, std::numbers::pi / 2, false};
    case OpCode::neg:
      return negate(operand(0));
    case OpCode::add:
      return add(operand(0), operand(1));
    case OpCode::sub:
      return add(operand(0), negate(operand(1)));
    case OpCode::mul:
    case OpCode::mul_rn:
      return multiply(operand(0), operand(1));
    case OpCode::fma:
      return add(multiply(operand(0), operand(1)), operand(2));
    case OpCode::where: {
      const Bounds a = operand(1), b = operand(2);
      return {std::min(a.low, b.low), std::max(a.high, b.high), a.hides || b.hides};
    }
    case OpCode::abs: {
      const Bounds a = operand(0);
      if (a.hides || !a.finite()) return {0, INFINITY, false};
      return {a.low > 0 ? a.low : a.high < 0 ? -a.high : 0, std::max(-a.low, a.high), false};
    }
    case OpCode::min: {
      const Bounds a = operand(0), b = operand(1);
      return {std::min(a.low, b.low), std::min(a.high, b.high), a.hides || b.hides};
    }
    case OpCode::max: {
      const Bounds a = operand(0), b = operand(1);
      return {std::max(a.low, b.low), std::max(a.high, b.high), a.hides && b.hides};
    }
    default:
      return anything;
  }
}

}  // namespace flashcore
