#include "codegen/analysis/intervals.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "codegen/analysis/row_expressions.h"
#include "codegen/analysis/slope.h"
#include "codegen/passes/rewrite.h"
#include "dsl/ir/affine.h"
#include "dsl/ir/type_rules.h"

namespace flashcore {
namespace {

using namespace ir;

class IntervalAnalysis : RowExpressions {
 public:
  using RowExpressions::RowExpressions;

  Truth condition(ValueId value) {
    return remembered(conditions_, value, [&] { return derive_condition(value); });
  }

 private:
  /// Lowest and highest value over the rows. Without one nothing is known.
  struct Range {
    ValueId low, high;
    [[nodiscard]] bool known() const { return static_cast<bool>(low); }
    [[nodiscard]] bool is_point() const { return low == high; }
  };

  // ---- numbers

  Range range(ValueId value) {
    return remembered(ranges_, value, [&]() -> Range {
      const DType dtype = f_[value].type.dtype;
      if (!is_pure(value) || (dtype != DType::i32 && dtype != DType::f32)) return {};
      if (const auto direction = slope(value)) {
        const ValueId first = copy(value, Rows::first);
        if (*direction == 0) return {first, first};
        const ValueId last = copy(value, Rows::last);
        return *direction > 0 ? Range{first, last} : Range{last, first};
      }
      if (!rows_only(value)) return derive_mixed(*f_.definition(value));
      const ValueId each = copy(value, Rows::each);  // the rows of the tile, looked at one by one
      return {outside_.reduce(OpCode::reduce_min, each, rows_),
              outside_.reduce(OpCode::reduce_max, each, rows_)};
    });
  }

  Range derive_mixed(const Op& made_by) {
    const Op op = made_by;
    const DType dtype = f_[op.results[0]].type.dtype;
    // A NaN gives way to the other number in some of these, and would leave the range.
    const bool loses_nan = op.code == OpCode::min || op.code == OpCode::max ||
                           op.code == OpCode::abs || op.code == OpCode::cast ||
                           op.code == OpCode::where;
    std::vector<Range> x;
    for (std::size_t i = op.code == OpCode::where ? 1 : 0; i < op.operands.size(); ++i) {
      x.push_back(range(op.operands[i]));
      if (!x.back().known() || (loses_nan && may_be_nan(op.operands[i]))) return {};
    }
    using Operands = std::vector<ValueId>;
    const auto ends = [&](OpCode code, const Operands& low, const Operands& high) -> Range {
      return {elementwise(code, low), elementwise(code, high)};
    };
    switch (op.code) {
      case OpCode::neg:
        return ends(OpCode::neg, {x[0].high}, {x[0].low});
      case OpCode::add:
      case OpCode::min:
      case OpCode::max:
        return ends(op.code, {x[0].low, x[1].low}, {x[0].high, x[1].high});
      case OpCode::sub:
        return ends(OpCode::sub, {x[0].low, x[1].high}, {x[0].high, x[1].low});
      case OpCode::mul:
        return product(x[0], x[1]);
      case OpCode::div:
        if (!is_positive_scalar(f_, op.operands[1])) return {};
        return ends(OpCode::div, {x[0].low, x[1].low}, {x[0].high, x[1].low});
      case OpCode::mod:
        return is_positive_scalar(f_, op.operands[1]) ? remainder(x[0], op.operands[1]) : Range{};
      case OpCode::abs: {
        const auto [below, above] = ends(OpCode::neg, {x[0].low}, {x[0].high});
        const ValueId outermost = elementwise(OpCode::max, {x[0].low, above});
        return ends(OpCode::max, {outermost, number(0, dtype)}, {below, x[0].high});
      }
      case OpCode::cast:
        return {builder_for({x[0].low}).cast(x[0].low, dtype),
                builder_for({x[0].high}).cast(x[0].high, dtype)};
      case OpCode::where: {
        const Truth c = condition(op.operands[0]);
        const auto pick = [&](OpCode extremum, ValueId yes, ValueId no) {
          ValueId result = elementwise(extremum, {yes, no});
          if (!is_number(f_, c.surely, 0))
            result = elementwise(OpCode::where, {c.surely, yes, result});
          if (!is_number(f_, c.maybe, 1))
            result = elementwise(OpCode::where, {c.maybe, result, no});
          return result;
        };
        return {pick(OpCode::min, x[0].low, x[1].low), pick(OpCode::max, x[0].high, x[1].high)};
      }
      default:
        return {};
    }
  }

  /// Of two of which one does not depend on the row.
  Range product(const Range& a, const Range& b) {
    if (!a.is_point() && !b.is_point()) return {};
    const Range &wide = a.is_point() ? b : a, &point = a.is_point() ? a : b;
    const ValueId x = elementwise(OpCode::mul, {wide.low, point.low});
    const ValueId y = elementwise(OpCode::mul, {wide.high, point.low});
    return {elementwise(OpCode::min, {x, y}), elementwise(OpCode::max, {x, y})};
  }

  /// Exact where all values lie in one period, else everything that a remainder can be.
  Range remainder(const Range& a, ValueId by) {
    const ValueId period = elementwise(OpCode::eq, {elementwise(OpCode::div, {a.low, by}),
                                                    elementwise(OpCode::div, {a.high, by})});
    const ValueId largest = elementwise(OpCode::sub, {by, number(1, DType::i32)});
    return {elementwise(OpCode::where,
                        {period, elementwise(OpCode::mod, {a.low, by}), number(0, DType::i32)}),
            elementwise(OpCode::where, {period, elementwise(OpCode::mod, {a.high, by}), largest})};
  }

  /// Of a linear form: exact, however often a position occurs in the expression it was read from.
  std::optional<Range> affine_range(const AffineForm& form) {
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
        add(outside_.tile_begin(rows_), last_position(outside_, rows_), factor);
      } else {
        return std::nullopt;
      }
    }
    return total;
  }

  // ---- conditions

  ValueId known(bool holds) { return number(holds ? 1 : 0, DType::i1); }
  Truth unknown() { return {known(true), known(false)}; }
  Truth opposite(const Truth& a) { return {invert(a.surely), invert(a.maybe)}; }

  ValueId both(ValueId a, ValueId b) { return build_both(builder_for({a, b}), a, b); }

  ValueId either(ValueId a, ValueId b) {
    if (is_number(f_, a, 1) || is_number(f_, b, 1)) return known(true);
    if (is_number(f_, a, 0)) return b;
    return is_number(f_, b, 0) || a == b ? a : elementwise(OpCode::logical_or, {a, b});
  }

  ValueId invert(ValueId a) {
    const double* number = constant_of(f_, a);
    return number ? known(*number == 0) : elementwise(OpCode::logical_not, {a});
  }

  Truth derive_condition(ValueId value) {
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
    if (op.code == OpCode::logical_not) return opposite(condition(op.operands[0]));
    if (is_comparison(op.code)) return compare(op);
    if (rows_only(value)) return some_and_all(value);
    switch (op.code) {
      case OpCode::logical_and:
      case OpCode::logical_or: {
        const Truth a = condition(op.operands[0]), b = condition(op.operands[1]);
        if (op.code == OpCode::logical_and)
          return {both(a.maybe, b.maybe), both(a.surely, b.surely)};
        return {either(a.maybe, b.maybe), either(a.surely, b.surely)};
      }
      case OpCode::where: {
        // Each builds ops, whose order no compiler chooses.
        const Truth no = condition(op.operands[2]), yes = condition(op.operands[1]);
        const Truth c = condition(op.operands[0]);
        return {either(both(c.maybe, yes.maybe), both(invert(c.surely), no.maybe)),
                either(both(yes.surely, no.surely),
                       either(both(c.surely, yes.surely), both(invert(c.maybe), no.surely)))};
      }
      default:
        return unknown();
    }
  }

  /// A condition on rows alone, looked at row by row.
  Truth some_and_all(ValueId condition) {
    const ValueId each = outside_.elementwise(
        OpCode::where, {copy(condition, Rows::each), number(1, DType::i32), number(0, DType::i32)});
    const auto holds = [&](OpCode reduction) {
      const ValueId extreme = outside_.reduce(reduction, each, rows_);
      return outside_.elementwise(OpCode::eq, {extreme, number(1, DType::i32)});
    };
    return {holds(OpCode::reduce_max), holds(OpCode::reduce_min)};
  }

  Truth compare(const Op& op) {
    const ValueId a = op.operands[0], b = op.operands[1], value = op.results[0];
    const bool monotone = slope(a) && slope(b);
    if (rows_only(value) && !monotone) return some_and_all(value);
    switch (op.code) {
      case OpCode::gt:
        return compare(OpCode::lt, b, a);
      case OpCode::ge:
        return compare(OpCode::le, b, a);
      case OpCode::ne:
        return opposite(compare(OpCode::eq, a, b));
      default:
        return compare(op.code, a, b);
    }
  }

  /// lt, le and eq.
  Truth compare(OpCode code, ValueId a, ValueId b) {
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
    const bool exact = x.is_point() && y.is_point();
    Truth result;
    if (code == OpCode::eq) {
      result.maybe = exact ? elementwise(OpCode::eq, {x.low, y.low})
                           : both(elementwise(OpCode::le, {x.low, y.high}),
                                  elementwise(OpCode::le, {y.low, x.high}));
      result.surely = exact ? result.maybe
                            : both(elementwise(OpCode::ge, {x.low, y.high}),
                                   elementwise(OpCode::ge, {y.low, x.high}));
    } else {
      result.maybe = elementwise(code, {x.low, y.high});
      result.surely = exact ? result.maybe : elementwise(code, {x.high, y.low});
    }
    // The extremes leave out the rows of a NaN, for which no comparison holds.
    if (!exact && (may_be_nan(a) || may_be_nan(b))) result.surely = known(false);
    return result;
  }

  // ---- expressions

  /// Whether the value is made of positions, scalars and gathers alone, by operations without a
  /// state.
  bool is_pure(ValueId value) {
    return remembered(pure_, value, [&] {
      const TileType& type = f_[value].type;
      const auto is_known = [&](AxisId axis) { return axis == axis_ || axis == rows_; };
      if (!std::ranges::all_of(type.axes, is_known)) return false;
      const Op* op = f_.definition(value);
      const OpKind kind = op ? kind_of(op->code) : OpKind::memory;
      if (kind == OpKind::elementwise)
        return std::ranges::all_of(op->operands, [&](ValueId operand) { return is_pure(operand); });
      if (kind == OpKind::source)
        return op->code != OpCode::tile_begin || f_.origin(op->axis) != axis_;
      // A scalar that does not change in the loop may come from anywhere.
      return type.is_scalar() && kind != OpKind::control && !inside_loop_[value.index];
    });
  }

  bool has_rows(ValueId value) const { return rows_ && f_[value].type.has(rows_); }

  bool rows_only(ValueId value) const { return has_rows(value) && f_[value].type.axes.size() == 1; }

  /// Numbers made of integers are no NaN; what is loaded or passed may be one.
  bool may_be_nan(ValueId value) {
    return remembered(may_be_nan_, value, [&] {
      if (f_[value].type.dtype == DType::i32 || f_[value].type.dtype == DType::i1) return false;
      const Op* op = f_.definition(value);
      if (!op) return true;
      switch (op->code) {
        case OpCode::constant:
          return !std::isfinite(op->number);
        case OpCode::cast:
        case OpCode::neg:
        case OpCode::abs:
        case OpCode::add:
        case OpCode::sub:
        case OpCode::mul:
        case OpCode::min:
        case OpCode::max:
        case OpCode::fma:
        case OpCode::where:
          return std::ranges::any_of(op->operands, [&](ValueId x) { return may_be_nan(x); });
        case OpCode::div:
          return may_be_nan(op->operands[0]) || !is_positive_scalar(f_, op->operands[1]);
        default:
          return true;
      }
    });
  }

  /// With the row.
  Slope slope(ValueId value) {
    return remembered(slopes_, value, [&]() -> Slope {
      if (!has_rows(value)) return 0;
      const Op* op = f_.definition(value);
      if (!op) return std::nullopt;
      if (f_[value].type.dtype == DType::i32)
        if (const auto form = affine_form(f_, value); form && form->quotients.empty()) {
          const auto rows = form->positions.find(rows_);
          const std::int64_t factor = rows == form->positions.end() ? 0 : rows->second;
          return factor > 0 ? 1 : factor < 0 ? -1 : 0;
        }
      return slope_of(f_, *op, [&](ValueId operand) { return slope(operand); });
    });
  }

  std::map<ValueId, bool> pure_, may_be_nan_;
  std::map<ValueId, Slope> slopes_;
  std::map<ValueId, Range> ranges_;
  std::map<ValueId, Truth> conditions_;
};

}  // namespace

std::function<Truth(ValueId)> truth_over_rows(Builder& outside, Builder& inside, const Op& loop) {
  return [analysis = std::make_shared<IntervalAnalysis>(outside, inside, loop)](ValueId condition) {
    return analysis->condition(condition);
  };
}

}  // namespace flashcore
