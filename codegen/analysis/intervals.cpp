#include "codegen/analysis/intervals.h"

#include <algorithm>

#include "codegen/passes/rewrite.h"
#include "dsl/ir/type_rules.h"

namespace flashcore {

using namespace ir;

IntervalAnalysis::IntervalAnalysis(Builder& outside, Builder& inside, const Op& loop)
    : f_(outside.function()),
      outside_(outside),
      inside_(inside),
      axis_(loop.axis),
      rows_(first_axis_of(f_, AxisKind::parallel_tiles)) {
  origins_.resize(f_.values.size());
  for (ValueId argument : f_[loop.body].arguments) origins_[argument.index] = Origin::iteration;
  for_each_op(f_, loop.body, [&](const Op& op, BlockId) {
    const OpKind kind = kind_of(op.code);
    const bool expression = kind == OpKind::source || kind == OpKind::elementwise;
    for (ValueId result : op.results)
      origins_[result.index] = expression ? Origin::expression : Origin::iteration;
  });
}

// ---- numbers

IntervalAnalysis::Range IntervalAnalysis::range(ValueId value) {
  return remembered(ranges_, value, [&] { return derive(value); });
}

IntervalAnalysis::Range IntervalAnalysis::derive(ValueId value) {
  const DType dtype = f_[value].type.dtype;
  if (!is_pure(value) || (dtype != DType::i32 && dtype != DType::f32)) return {};
  if (const auto direction = slope(value)) {
    const ValueId first = copy(value, Rows::first);
    if (*direction == 0) return {first, first};
    const ValueId last = copy(value, Rows::last);
    return *direction > 0 ? Range{first, last} : Range{last, first};
  }
  if (rows_only(value)) return extremes(value);
  return derive_mixed(*f_.definition(value));
}

/// Over the rows of the tile, each looked at.
IntervalAnalysis::Range IntervalAnalysis::extremes(ValueId value) {
  const ValueId each = copy(value, Rows::each);
  return {outside_.reduce(OpCode::reduce_min, each, rows_),
          outside_.reduce(OpCode::reduce_max, each, rows_)};
}

IntervalAnalysis::Range IntervalAnalysis::derive_mixed(const Op& made_by) {
  const Op op = made_by;
  const DType dtype = f_[op.results[0]].type.dtype;
  std::vector<Range> x;
  for (std::size_t i = op.code == OpCode::where ? 1 : 0; i < op.operands.size(); ++i) {
    x.push_back(range(op.operands[i]));
    if (!x.back().known()) return {};
  }
  const auto make = [&](OpCode code, ValueId a, ValueId b) { return elementwise(code, {a, b}); };
  switch (op.code) {
    case OpCode::neg:
      return {elementwise(OpCode::neg, {x[0].high}), elementwise(OpCode::neg, {x[0].low})};
    case OpCode::add:
      return {make(OpCode::add, x[0].low, x[1].low), make(OpCode::add, x[0].high, x[1].high)};
    case OpCode::sub:
      return {make(OpCode::sub, x[0].low, x[1].high), make(OpCode::sub, x[0].high, x[1].low)};
    case OpCode::mul:
      return product(x[0], x[1]);
    case OpCode::div:
      if (!is_positive_scalar(f_, op.operands[1])) return {};
      return {make(OpCode::div, x[0].low, x[1].low), make(OpCode::div, x[0].high, x[1].low)};
    case OpCode::mod:
      return is_positive_scalar(f_, op.operands[1]) ? remainder(x[0], op.operands[1]) : Range{};
    case OpCode::min:
    case OpCode::max:
      // A NaN gives way to the other number here, and would leave the range.
      if (may_be_nan(op.operands[0]) || may_be_nan(op.operands[1])) return {};
      return {make(op.code, x[0].low, x[1].low), make(op.code, x[0].high, x[1].high)};
    case OpCode::abs: {
      if (may_be_nan(op.operands[0])) return {};
      const ValueId negated = elementwise(OpCode::neg, {x[0].low});
      const ValueId outermost = make(OpCode::max, x[0].low, elementwise(OpCode::neg, {x[0].high}));
      return {make(OpCode::max, outermost, number(0, dtype)),
              make(OpCode::max, negated, x[0].high)};
    }
    case OpCode::cast:
      if (may_be_nan(op.operands[0])) return {};
      return {builder_for({x[0].low}).cast(x[0].low, dtype),
              builder_for({x[0].high}).cast(x[0].high, dtype)};
    case OpCode::where: {
      if (may_be_nan(op.operands[1]) || may_be_nan(op.operands[2])) return {};
      const Truth c = condition(op.operands[0]);
      const auto pick = [&](OpCode extremum, ValueId yes, ValueId no) {
        ValueId result = make(extremum, yes, no);
        if (!is_number(f_, c.surely, 0))
          result = elementwise(OpCode::where, {c.surely, yes, result});
        if (!is_number(f_, c.maybe, 1)) result = elementwise(OpCode::where, {c.maybe, result, no});
        return result;
      };
      return {pick(OpCode::min, x[0].low, x[1].low), pick(OpCode::max, x[0].high, x[1].high)};
    }
    default:
      return {};
  }
}

/// Of two of which one does not depend on the row.
IntervalAnalysis::Range IntervalAnalysis::product(const Range& a, const Range& b) {
  if (!a.is_point() && !b.is_point()) return {};
  const Range &wide = a.is_point() ? b : a, &point = a.is_point() ? a : b;
  const ValueId x = elementwise(OpCode::mul, {wide.low, point.low});
  const ValueId y = elementwise(OpCode::mul, {wide.high, point.low});
  return {elementwise(OpCode::min, {x, y}), elementwise(OpCode::max, {x, y})};
}

/// Exact where all values lie in one period, else everything that a remainder can be.
IntervalAnalysis::Range IntervalAnalysis::remainder(const Range& a, ValueId by) {
  const ValueId period = elementwise(
      OpCode::eq, {elementwise(OpCode::div, {a.low, by}), elementwise(OpCode::div, {a.high, by})});
  const ValueId largest = elementwise(OpCode::sub, {by, number(1, DType::i32)});
  return {elementwise(OpCode::where,
                      {period, elementwise(OpCode::mod, {a.low, by}), number(0, DType::i32)}),
          elementwise(OpCode::where, {period, elementwise(OpCode::mod, {a.high, by}), largest})};
}

/// Of a linear form: exact, however often a position occurs in the expression it was read from.
std::optional<IntervalAnalysis::Range> IntervalAnalysis::affine_range(const AffineForm& form) {
  Range total;
  const auto add = [&](ValueId low, ValueId high, std::int64_t factor) {
    if (factor < 0) std::swap(low, high);
    const auto onto = [&](ValueId& sum, ValueId value) {
      const bool less = factor < 0 && sum;
      const std::int64_t by = less ? -factor : factor;
      if (by != 1)
        value = elementwise(OpCode::mul, {value, number(static_cast<double>(by), DType::i32)});
      sum = sum ? elementwise(less ? OpCode::sub : OpCode::add, {sum, value}) : value;
    };
    const bool together = total.low == total.high && low == high;
    onto(total.low, low);
    if (together)
      total.high = total.low;
    else
      onto(total.high, high);
  };
  for (const auto& [scalar, factor] : form.scalars) {
    if (!is_pure(scalar)) return std::nullopt;
    const ValueId here = copy(scalar, Rows::first);
    add(here, here, factor);
  }
  if (form.constant || form.scalars.empty()) {
    const ValueId constant = number(static_cast<double>(form.constant), DType::i32);
    add(constant, constant, 1);
  }
  for (const auto& [axis, factor] : form.positions) {
    if (axis == axis_) {
      const ValueId here = inside_.index(axis_);
      add(here, here, factor);
    } else if (axis == rows_) {
      add(first_row(), last_row(), factor);
    } else {
      return std::nullopt;
    }
  }
  return total;
}

// ---- conditions

ValueId IntervalAnalysis::both(ValueId a, ValueId b) {
  if (is_number(f_, a, 0) || is_number(f_, b, 0)) return known(false);
  if (is_number(f_, a, 1)) return b;
  return is_number(f_, b, 1) || a == b ? a : elementwise(OpCode::logical_and, {a, b});
}

ValueId IntervalAnalysis::either(ValueId a, ValueId b) {
  if (is_number(f_, a, 1) || is_number(f_, b, 1)) return known(true);
  if (is_number(f_, a, 0)) return b;
  return is_number(f_, b, 0) || a == b ? a : elementwise(OpCode::logical_or, {a, b});
}

ValueId IntervalAnalysis::invert(ValueId a) {
  const double* number = constant_of(f_, a);
  return number ? known(*number == 0) : elementwise(OpCode::logical_not, {a});
}

Truth IntervalAnalysis::condition(ValueId value) {
  return remembered(conditions_, value, [&] { return derive_condition(value); });
}

Truth IntervalAnalysis::derive_condition(ValueId value) {
  if (!is_pure(value)) return unknown();
  const Op* found = f_.definition(value);
  if (found && found->code == OpCode::constant) {
    const ValueId always = known(found->number != 0);
    return {always, always};
  }
  if (!has_rows(value)) {
    const ValueId exact = copy(value, Rows::first);
    return {exact, exact};
  }
  const Op op = *found;
  switch (op.code) {
    case OpCode::logical_not: {
      const Truth a = condition(op.operands[0]);
      return {invert(a.surely), invert(a.maybe)};
    }
    case OpCode::logical_and:
    case OpCode::logical_or: {
      if (rows_only(value)) return some_and_all(value);
      const Truth a = condition(op.operands[0]), b = condition(op.operands[1]);
      if (op.code == OpCode::logical_and) return {both(a.maybe, b.maybe), both(a.surely, b.surely)};
      return {either(a.maybe, b.maybe), either(a.surely, b.surely)};
    }
    case OpCode::where:
      if (rows_only(value)) return some_and_all(value);
      return choice(condition(op.operands[0]), condition(op.operands[1]),
                    condition(op.operands[2]));
    default:
      if (is_comparison(op.code)) return compare(op);
      return rows_only(value) ? some_and_all(value) : unknown();
  }
}

Truth IntervalAnalysis::choice(const Truth& c, const Truth& yes, const Truth& no) {
  return {either(both(c.maybe, yes.maybe), both(invert(c.surely), no.maybe)),
          either(both(yes.surely, no.surely),
                 either(both(c.surely, yes.surely), both(invert(c.maybe), no.surely)))};
}

/// A condition on rows alone, looked at row by row.
Truth IntervalAnalysis::some_and_all(ValueId condition) {
  const ValueId each = outside_.elementwise(
      OpCode::where, {copy(condition, Rows::each), number(1, DType::i32), number(0, DType::i32)});
  const auto holds = [&](OpCode reduction) {
    const ValueId extreme = outside_.reduce(reduction, each, rows_);
    return outside_.elementwise(OpCode::eq, {extreme, number(1, DType::i32)});
  };
  return {holds(OpCode::reduce_max), holds(OpCode::reduce_min)};
}

Truth IntervalAnalysis::compare(const Op& op) {
  const ValueId a = op.operands[0], b = op.operands[1], value = op.results[0];
  const bool monotone = slope(a) && slope(b);
  if (rows_only(value) && !monotone) return some_and_all(value);
  switch (op.code) {
    case OpCode::gt:
      return compare(OpCode::lt, b, a);
    case OpCode::ge:
      return compare(OpCode::le, b, a);
    case OpCode::ne: {
      const Truth equal = compare(OpCode::eq, a, b);
      return {invert(equal.surely), invert(equal.maybe)};
    }
    default:
      return compare(op.code, a, b);
  }
}

/// lt, le and eq.
Truth IntervalAnalysis::compare(OpCode code, ValueId a, ValueId b) {
  const bool integers = f_[a].type.dtype == DType::i32;
  Range x, y;  // compared: x against y
  const auto left = integers ? affine_form(f_, a) : std::nullopt;
  const auto right = integers ? affine_form(f_, b) : std::nullopt;
  if (left && right && left->quotients.empty() && right->quotients.empty()) {
    if (const auto difference = affine_range(*left + *right * -1)) {
      x = *difference;
      y = {number(0, DType::i32), number(0, DType::i32)};
    }
  }
  if (!x.known()) x = range(a), y = range(b);
  if (!x.known() || !y.known()) return unknown();
  const auto holds = [&](OpCode comparison, ValueId p, ValueId q) {
    return elementwise(comparison, {p, q});
  };
  const bool exact = x.is_point() && y.is_point();
  Truth result;
  if (code == OpCode::eq) {
    result.maybe = exact ? holds(OpCode::eq, x.low, y.low)
                         : both(holds(OpCode::le, x.low, y.high), holds(OpCode::le, y.low, x.high));
    result.surely = exact
                        ? result.maybe
                        : both(holds(OpCode::ge, x.low, y.high), holds(OpCode::ge, y.low, x.high));
  } else {
    result.maybe = holds(code, x.low, y.high);
    result.surely = exact ? result.maybe : holds(code, x.high, y.low);
  }
  // The extremes leave out the rows of a NaN, for which no comparison holds.
  if (!exact && (may_be_nan(a) || may_be_nan(b))) result.surely = known(false);
  return result;
}

}  // namespace flashcore
