#include "codegen/analysis/changes.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "codegen/analysis/visit.h"
#include "dsl/ir/type_rules.h"

namespace flashcore {

using namespace ir;

namespace {

/// Sums and products of shared values could have a form of any size.
constexpr std::size_t most_terms = 16;

/// Of what is at most multiplied.
Change scaled(Change change) { return change.plus.empty() ? change : unknown_change; }

bool is_infinite(const Function& f, ValueId value) {
  return is_number(f, value, INFINITY) || is_number(f, value, -INFINITY);
}

}  // namespace

LinearForm add_forms(LinearForm a, const LinearForm& b, double factor) {
  for (const auto& [product, number] : b) {
    const double before = a[product], added = factor * number;
    a[product] += added;
    if (std::abs(before + added) <= 1e-6 * std::max(std::abs(before), std::abs(added)))
      a.erase(product);
  }
  return a;
}

Change Changes::of(ValueId value) {
  return remembered(known_, value, [&] {
    const Op* op = f_.definition(value);
    const auto reads_changed = [&](const Op& inner) {
      return any_use(inner, [&](ValueId used) { return !same(used); });
    };
    if (!op || !any_op_of(f_, *op, reads_changed)) return Change{};
    const Change change = op->body ? unknown_change : derive(*op);
    return change.power.size() + change.plus.size() <= most_terms ? change : unknown_change;
  });
}

Change Changes::derive(const Op& op) {
  const auto operand = [&](std::size_t i) { return of(op.operands[i]); };
  switch (op.code) {
    case OpCode::transpose:
      return scaled(operand(0));
    case OpCode::reduce_sum:
      return summed(operand(0), op.axis);
    case OpCode::cast:
      if (!is_half(f_[op.results[0]].type.dtype)) return operand(0);
      return inside_ ? scaled(operand(0)) : unknown_change;
    case OpCode::neg: {
      const Change a = operand(0);
      return {a.power, add_forms({}, a.plus, -1), a.known};
    }
    case OpCode::add:
      return sum(operand(0), operand(1), 1);
    case OpCode::sub:
      return sum(operand(0), operand(1), -1);
    case OpCode::mul:
      return of_product(op.operands[0], op.operands[1]);
    case OpCode::fma:
      return sum(of_product(op.operands[0], op.operands[1]), operand(2), 1);
    case OpCode::dot:
      return op.operands.size() == 3 ? sum(of_dot(op), operand(2), 1) : of_dot(op);
    case OpCode::div:
      return of_product(op.operands[0], op.operands[1], -1);
    case OpCode::reciprocal: {
      const Change a = scaled(operand(0));
      return {add_forms({}, a.power, -1), {}, a.known};
    }
    case OpCode::log2:
    case OpCode::log: {
      const Change a = scaled(operand(0));
      return {{}, add_forms({}, a.power, op.code == OpCode::log2 ? 1 : std::numbers::ln2), a.known};
    }
    case OpCode::exp2:
    case OpCode::exp: {
      const Change a = operand(0);
      if (!a.power.empty()) return unknown_change;
      return {
          add_forms({}, a.plus, op.code == OpCode::exp2 ? 1 : std::numbers::log2e), {}, a.known};
    }
    case OpCode::where:
      return choice(op);
    default:
      return is_comparison(op.code) ? comparison(op) : unknown_change;
  }
}

Change Changes::sum(const Change& a, const Change& b, int sign) const {
  if (!a.known || !b.known || !add_forms(a.power, b.power, -1).empty()) return unknown_change;
  // What a weight and the same weight rounded differ by is no multiple of anything.
  if (inside_ && !a.power.empty()) return unknown_change;
  return {a.power, add_forms(a.plus, b.plus, sign)};
}

Change Changes::of_product(ValueId a, ValueId b, int sign) {
  const Change x = of(a), y = of(b);
  if (!x.known || !y.known) return unknown_change;
  if (x.plus.empty() && y.plus.empty()) return {add_forms(x.power, y.power, sign), {}};
  // (m + D) c = m c + D c, of what else stays as it is.
  const bool left = y == Change{} && x.power.empty();
  if (!left && (sign < 0 || x != Change{} || !y.power.empty())) return unknown_change;
  const ValueId factor = left ? b : a;
  const LinearForm& plus = left ? x.plus : y.plus;
  if (const double* number = constant_of(f_, factor))
    return {{}, add_forms({}, plus, sign > 0 ? *number : 1 / *number)};
  if (sign < 0) return unknown_change;
  Change made;
  for (const auto& [product, number] : plus) {
    std::vector<ValueId> larger = product;
    larger.insert(std::ranges::upper_bound(larger, factor), factor);
    made.plus[larger] = number;
  }
  return made;
}

Change Changes::of_dot(const Op& dot) {
  return summed(of_product(dot.operands[0], dot.operands[1]), inner_axis(f_, dot));
}

/// Terms that are multiplied by different powers have no power in common.
Change Changes::summed(const Change& change, AxisId axis) const {
  const auto varies = [&](ValueId factor) {
    return std::ranges::count(f_[factor].type.axes, axis) > 0;
  };
  for (const auto& [product, number] : change.power)
    if (std::ranges::any_of(product, varies)) return unknown_change;
  return scaled(change);
}

Change Changes::comparison(const Op& op) {
  for (const std::size_t i : {0, 1}) {
    const Change side = of(op.operands[i]);
    const ValueId other = op.operands[1 - i];
    // A power is above zero, and so turns no sign. What was added is finite whatever it is.
    const bool stays =
        is_number(f_, other, 0) ? scaled(side).known : side.known && is_infinite(f_, other);
    if (!inside_ && stays) return {};
  }
  return unknown_change;
}

/// Zero and infinity stay what they are however often they are multiplied, and infinity whatever is
/// added.
Change Changes::choice(const Op& op) {
  if (!same(op.operands[0])) return unknown_change;
  const Change yes = of(op.operands[1]), no = of(op.operands[2]);
  if (yes == no) return yes;
  const auto stays = [&](ValueId value, const Change& as) {
    return is_infinite(f_, value) || (as.plus.empty() && is_number(f_, value, 0));
  };
  if (stays(op.operands[2], yes)) return yes;
  return stays(op.operands[1], no) ? no : unknown_change;
}

}  // namespace flashcore
