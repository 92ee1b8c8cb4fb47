// What the analysis of intervals asks of expressions, and how it builds them once more at other rows.
#include <algorithm>
#include <cmath>

#include "codegen/analysis/intervals.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {

using namespace ir;

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

/// Numbers made of integers are no NaN; what is loaded or passed may be one.
bool IntervalAnalysis::may_be_nan(ValueId value) {
  return remembered(may_be_nan_, value, [&] { return derive_may_be_nan(value); });
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
      return may_be_nan(op->operands[0]) || !is_positive_scalar(f_, op->operands[1]);
    default:
      return true;
  }
}

Slope IntervalAnalysis::slope(ValueId value) {
  return remembered(slopes_, value, [&] { return derive_slope(value); });
}

Slope IntervalAnalysis::derive_slope(ValueId value) {
  if (!has_rows(value)) return 0;
  const Op* op = f_.definition(value);
  if (!op) return std::nullopt;
  if (f_[value].type.dtype == DType::i32)
    if (const auto form = affine_form(f_, value); form && form->quotients.empty()) {
      const auto rows = form->positions.find(rows_);
      const std::int64_t factor = rows == form->positions.end() ? 0 : rows->second;
      return factor > 0 ? 1 : factor < 0 ? -1 : 0;
    }
  std::vector<Slope> slopes;
  for (ValueId operand : op->operands) slopes.push_back(slope(operand));
  return slope_of(f_, *op, slopes);
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
    Op copied = op;
    copied.results.clear();
    TileType type{f_[value].type.dtype, {}};
    for (ValueId& operand : copied.operands) {
      operand = copy(operand, rows);
      for (AxisId axis : f_[operand].type.axes)
        if (!type.has(axis)) type.axes.push_back(axis);
    }
    std::sort(type.axes.begin(), type.axes.end());
    Builder& b = builder_for(copied.operands);
    result = f_[b.append(std::move(copied), {type})].results[0];
  }
  return copies_[{value, rows}] = result;
}

}  // namespace flashcore
