#include "codegen/analysis/intervals.h"

#include <algorithm>
#include <cmath>

#include "codegen/passes/rewrite.h"

namespace flashcore {

using namespace ir;

IntervalAnalysis::IntervalAnalysis(Builder& outside, Builder& inside, const Op& loop)
    : f_(outside.function()), outside_(outside), inside_(inside), axis_(loop.axis) {
  for (std::size_t i = 0; i < f_.axes.size(); ++i)
    if (f_.axes[i].kind == AxisKind::parallel_tiles && !rows_) rows_ = AxisId(i);
  origins_.resize(f_.values.size());
  for (ValueId argument : f_[loop.body].arguments) origins_[argument.index] = Origin::iteration;
  for_each_op(f_, loop.body, [&](const Op& op, BlockId) {
    const OpKind kind = kind_of(op.code);
    const bool expression = kind == OpKind::source || kind == OpKind::elementwise;
    for (ValueId result : op.results)
      origins_[result.index] = expression ? Origin::expression : Origin::iteration;
  });
}

// ---- expressions

bool IntervalAnalysis::is_pure(ValueId value) {
  const auto found = pure_.find(value);
  if (found != pure_.end()) return found->second;
  const Op* op = f_.definition(value);
  bool pure = origins_[value.index] != Origin::iteration;
  for (AxisId axis : f_[value].type.axes) pure = pure && (axis == axis_ || axis == rows_);
  // A scalar that does not change in the loop may come from anywhere.
  const bool scalar = f_[value].type.is_scalar();
  if (op && kind_of(op->code) == OpKind::elementwise) {
    const std::vector<ValueId> operands = op->operands;
    for (ValueId operand : operands) pure = pure && is_pure(operand);
  } else if (op && kind_of(op->code) == OpKind::source) {
    pure = pure && !(op->code == OpCode::tile_begin && f_.origin(op->axis) == axis_);
  } else {
    pure = pure && scalar && !(op && kind_of(op->code) == OpKind::control);
  }
  return pure_[value] = pure;
}

bool IntervalAnalysis::has_rows(ValueId value) const { return rows_ && f_[value].type.has(rows_); }

bool IntervalAnalysis::rows_only(ValueId value) const {
  return has_rows(value) && f_[value].type.axes.size() == 1;
}

bool IntervalAnalysis::is_positive_scalar(ValueId value) const {
  const double* constant = constant_of(f_, value);
  return constant ? *constant > 0 : f_[value].type.is_scalar() && is_positive(f_, value);
}

/// Numbers made of integers are no NaN; what is loaded or passed may be one.
bool IntervalAnalysis::may_be_nan(ValueId value) {
  const auto found = may_be_nan_.find(value);
  if (found != may_be_nan_.end()) return found->second;
  return may_be_nan_[value] = derive_may_be_nan(value);
}

bool IntervalAnalysis::derive_may_be_nan(ValueId value) {
  if (f_[value].type.dtype == DType::i32) return false;
  const Op* op = f_.definition(value);
  if (!op) return true;
  if (op->code == OpCode::constant) return !std::isfinite(op->number);
  if (op->code == OpCode::cast) return may_be_nan(op->operands[0]);
  switch (op->code) {
    case OpCode::neg:
    case OpCode::abs:
    case OpCode::add:
    case OpCode::sub:
    case OpCode::mul:
    case OpCode::min:
    case OpCode::max:
    case OpCode::fma:
      return std::any_of(op->operands.begin(), op->operands.end(),
                         [&](ValueId operand) { return may_be_nan(operand); });
    case OpCode::where:
      return may_be_nan(op->operands[1]) || may_be_nan(op->operands[2]);
    case OpCode::div:
      return may_be_nan(op->operands[0]) || !is_positive_scalar(op->operands[1]);
    default:
      return true;
  }
}

std::optional<int> IntervalAnalysis::slope(ValueId value) {
  const auto found = slopes_.find(value);
  if (found != slopes_.end()) return found->second;
  const std::optional<int> result = derive_slope(value);
  slopes_[value] = result;
  return result;
}

std::optional<int> IntervalAnalysis::derive_slope(ValueId value) {
  if (!has_rows(value)) return 0;
  const Op* found = f_.definition(value);
  if (!found) return std::nullopt;
  const Op op = *found;
  if (f_[value].type.dtype == DType::i32)
    if (const auto form = affine_form(f_, value); form && form->quotients.empty()) {
      const auto rows = form->positions.find(rows_);
      const std::int64_t factor = rows == form->positions.end() ? 0 : rows->second;
      return factor > 0 ? 1 : factor < 0 ? -1 : 0;
    }
  const auto of = [&](std::size_t i) { return slope(op.operands[i]); };
  const auto negated = [](std::optional<int> a) { return a ? std::optional(-*a) : a; };
  const auto together = [](std::optional<int> a, std::optional<int> b) -> std::optional<int> {
    if (!a || !b || *a * *b < 0) return std::nullopt;
    return *a ? a : b;
  };
  const auto scaled = [&](std::size_t value_at, std::size_t factor_at) -> std::optional<int> {
    const ValueId factor = op.operands[factor_at];
    if (is_positive_scalar(factor)) return of(value_at);
    const double* constant = constant_of(f_, factor);
    return constant && *constant < 0 ? negated(of(value_at)) : std::nullopt;
  };
  switch (op.code) {
    case OpCode::constant:
      return 0;
    case OpCode::index:
      return 1;
    case OpCode::cast:
      return of(0);
    case OpCode::neg:
      return negated(of(0));
    case OpCode::add:
    case OpCode::min:
    case OpCode::max:
      return together(of(0), of(1));
    case OpCode::sub:
      return together(of(0), negated(of(1)));
    case OpCode::mul: {
      const auto right = scaled(0, 1);
      return right ? right : scaled(1, 0);
    }
    case OpCode::div:
      if (!is_positive_scalar(op.operands[1])) return std::nullopt;
      return of(0);
    case OpCode::fma: {
      const auto right = scaled(0, 1);
      return together(right ? right : scaled(1, 0), of(2));
    }
    default:
      return std::nullopt;
  }
}

// ---- building

Builder& IntervalAnalysis::builder_for(const std::vector<ValueId>& operands) {
  for (ValueId operand : operands)
    if (f_[operand].type.has(axis_)) return inside_;
  return outside_;
}

ValueId IntervalAnalysis::elementwise(OpCode code, std::vector<ValueId> operands) {
  Builder& b = builder_for(operands);
  return b.elementwise(code, std::move(operands));
}

ValueId IntervalAnalysis::number(double value, DType dtype) {
  ValueId& known = numbers_[{value, dtype}];
  if (!known) known = outside_.constant(value, dtype);
  return known;
}

ValueId IntervalAnalysis::first_row() {
  if (!first_row_) first_row_ = outside_.tile_begin(rows_);
  return first_row_;
}

/// The last position of the block's tile that exists.
ValueId IntervalAnalysis::last_row() {
  if (last_row_) return last_row_;
  const ValueId end = outside_.add(first_row(), number(f_[rows_].tile, DType::i32));
  return last_row_ = outside_.sub(outside_.elementwise(OpCode::min, {end, outside_.extent(rows_)}),
                                  number(1, DType::i32));
}

/// The expression once more, at the first or the last row or with every row that does not exist
/// replaced by the last one.
ValueId IntervalAnalysis::copy(ValueId value, Rows rows) {
  if (f_[value].type.is_scalar() && origins_[value.index] == Origin::outside) return value;
  const auto found = copies_.find({value, rows});
  if (found != copies_.end()) return found->second;
  const Op op = *f_.definition(value);
  ValueId result;
  if (op.code == OpCode::constant) {
    result = number(op.number, f_[value].type.dtype);
  } else if (op.code == OpCode::index && op.axis == axis_) {
    result = inside_.index(axis_);
  } else if (op.code == OpCode::index) {
    result = rows == Rows::first ? first_row()
             : rows == Rows::last
                 ? last_row()
                 : outside_.elementwise(OpCode::min, {outside_.index(rows_), last_row()});
  } else {
    Op copied{.code = op.code,
              .where = op.where,
              .axis = op.axis,
              .tensor = op.tensor,
              .wraps = op.wraps,
              .parameter = op.parameter};
    TileType type{f_[value].type.dtype, {}};
    for (ValueId operand : op.operands) copied.operands.push_back(copy(operand, rows));
    for (ValueId operand : copied.operands)
      for (AxisId axis : f_[operand].type.axes)
        if (!type.has(axis)) type.axes.push_back(axis);
    std::sort(type.axes.begin(), type.axes.end());
    Builder& b = builder_for(copied.operands);
    result = f_[b.append(std::move(copied), {type})].results[0];
  }
  return copies_[{value, rows}] = result;
}

ValueId IntervalAnalysis::materialize(const Known& condition) {
  return condition.always ? number(*condition.always ? 1 : 0, DType::i1) : condition.value;
}

// ---- numbers

IntervalAnalysis::Range IntervalAnalysis::range(ValueId value) {
  const auto found = ranges_.find(value);
  if (found != ranges_.end()) return found->second;
  const Range result = derive(value);
  ranges_[value] = result;
  return result;
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
      if (!is_positive_scalar(op.operands[1])) return {};
      return {make(OpCode::div, x[0].low, x[1].low), make(OpCode::div, x[0].high, x[1].low)};
    case OpCode::mod:
      return is_positive_scalar(op.operands[1]) ? remainder(x[0], op.operands[1]) : Range{};
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
        if (!c.surely.is(false))
          result = elementwise(OpCode::where, {materialize(c.surely), yes, result});
        if (!c.maybe.is(true))
          result = elementwise(OpCode::where, {materialize(c.maybe), result, no});
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

Known IntervalAnalysis::both(const Known& a, const Known& b) {
  if (a.is(false) || b.is(false)) return Known::of(false);
  if (a.always) return b;
  if (b.always || a.value == b.value) return a;
  return {elementwise(OpCode::logical_and, {a.value, b.value}), {}};
}

Known IntervalAnalysis::either(const Known& a, const Known& b) {
  if (a.is(true) || b.is(true)) return Known::of(true);
  if (a.always) return b;
  if (b.always || a.value == b.value) return a;
  return {elementwise(OpCode::logical_or, {a.value, b.value}), {}};
}

Known IntervalAnalysis::invert(const Known& a) {
  if (a.always) return Known::of(!*a.always);
  return {elementwise(OpCode::logical_not, {a.value}), {}};
}

Truth IntervalAnalysis::condition(ValueId value) {
  const auto found = conditions_.find(value);
  if (found != conditions_.end()) return found->second;
  const Truth result = derive_condition(value);
  conditions_[value] = result;
  return result;
}

Truth IntervalAnalysis::derive_condition(ValueId value) {
  const Truth unknown{Known::of(true), Known::of(false)};
  if (!is_pure(value)) return unknown;
  const Op* found = f_.definition(value);
  if (found && found->code == OpCode::constant) {
    const Known known = Known::of(found->number != 0);
    return {known, known};
  }
  if (!has_rows(value)) {
    const Known exact{copy(value, Rows::first), {}};
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
    case OpCode::lt:
    case OpCode::le:
    case OpCode::gt:
    case OpCode::ge:
    case OpCode::eq:
    case OpCode::ne:
      return compare(op);
    default:
      return rows_only(value) ? some_and_all(value) : unknown;
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
    return Known{outside_.elementwise(OpCode::eq, {extreme, number(1, DType::i32)}), {}};
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
    AffineForm form = *left;
    for (const auto& [axis, factor] : right->positions) form.positions[axis] -= factor;
    for (const auto& [scalar, factor] : right->scalars) form.scalars[scalar] -= factor;
    form.constant -= right->constant;
    std::erase_if(form.positions, [](const auto& term) { return term.second == 0; });
    std::erase_if(form.scalars, [](const auto& term) { return term.second == 0; });
    if (const auto difference = affine_range(form)) {
      x = *difference;
      y = {number(0, DType::i32), number(0, DType::i32)};
    }
  }
  if (!x.known()) x = range(a), y = range(b);
  if (!x.known() || !y.known()) return {Known::of(true), Known::of(false)};
  const auto holds = [&](OpCode comparison, ValueId p, ValueId q) {
    return Known{elementwise(comparison, {p, q}), {}};
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
  if (!exact && (may_be_nan(a) || may_be_nan(b))) result.surely = Known::of(false);
  return result;
}

}  // namespace flashcore
