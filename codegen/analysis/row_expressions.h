// Expressions on the positions of rows and of a loop's axis, built anew for some of the rows of a tile.
#pragma once

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "codegen/passes/rewrite.h"
#include "dsl/ir/builder.h"

namespace flashcore {

/// `outside` builds before the loop, `inside` in a region that knows the positions of one tile of its
/// axis.
class RowExpressions {
 public:
  RowExpressions(ir::Builder& outside, ir::Builder& inside, const ir::Op& loop)
      : f_(outside.function()),
        outside_(outside),
        inside_(inside),
        axis_(loop.axis),
        rows_(first_axis_of(f_, ir::AxisKind::parallel_tiles)),
        inside_loop_(made_inside(f_, loop.body)) {}

 protected:
  /// What stands for the position of a row in a copy of an expression.
  enum class Rows { first, last, each };

  ir::Builder& builder_for(const std::vector<ir::ValueId>& operands) {
    for (ir::ValueId operand : operands)
      if (f_[operand].type.has(axis_)) return inside_;
    return outside_;
  }

  ir::ValueId elementwise(ir::OpCode code, std::vector<ir::ValueId> operands) {
    ir::Builder& b = builder_for(operands);
    return b.elementwise(code, std::move(operands));
  }

  ir::ValueId number(double value, DType dtype) {
    return remembered(numbers_, {value, dtype}, [&] { return outside_.constant(value, dtype); });
  }

  /// The expression once more, at the first or the last row or with every row that does not exist
  /// replaced by the last one.
  ir::ValueId copy(ir::ValueId value, Rows rows) {
    if (f_[value].type.is_scalar() && !inside_loop_[value.index]) return value;
    return remembered(copies_, {value, rows}, [&] { return derive_copy(value, rows); });
  }

  ir::ValueId derive_copy(ir::ValueId value, Rows rows) {
    ir::Op op = *f_.definition(value);
    if (op.code == ir::OpCode::constant) return number(op.number, f_[value].type.dtype);
    if (op.code == ir::OpCode::index && op.axis == axis_) return inside_.index(axis_);
    if (op.code == ir::OpCode::index) {
      if (rows == Rows::first) return outside_.tile_begin(rows_);
      if (rows == Rows::last) return last_position(outside_, rows_);
      const ir::ValueId each = outside_.index(rows_);
      return outside_.min(each, last_position(outside_, rows_));
    }
    op.results.clear();
    ir::TileType type{f_[value].type.dtype, {}};
    for (ir::ValueId& operand : op.operands) {
      operand = copy(operand, rows);
      for (ir::AxisId axis : f_[operand].type.axes)
        if (!type.has(axis)) type.axes.push_back(axis);
    }
    std::sort(type.axes.begin(), type.axes.end());
    ir::Builder& b = builder_for(op.operands);
    return b.make(std::move(op), std::move(type));
  }

  ir::Function& f_;
  ir::Builder &outside_, &inside_;
  ir::AxisId axis_, rows_;
  std::vector<bool> inside_loop_;  ///< by value

 private:
  std::map<std::pair<ir::ValueId, Rows>, ir::ValueId> copies_;
  std::map<std::pair<double, DType>, ir::ValueId> numbers_;
};

}  // namespace flashcore
