#include "codegen/analysis/beyond_axis.h"

#include <algorithm>
#include <set>

#include "codegen/analysis/neutral.h"
#include "codegen/analysis/tile_guard.h"

namespace flashcore {

using namespace ir;

namespace {

class RowsBeyond {
 public:
  RowsBeyond(const Function& f, AxisId axis) : f_(f), axis_(axis) {}

  /// Whether elements of a value that lie beyond the axis come into a sum.
  bool are_summed(ValueId value) {
    if (!f_[value].type.has(axis_) || !seen_.insert(value).second) return false;
    return std::ranges::any_of(f_.ops, [&](const Op& op) {
      const auto reads = [&](std::size_t i) { return op.operands[i] == value; };
      if (std::ranges::count(op.operands, value) == 0) return false;
      switch (kind_of(op.code)) {
        case OpKind::elementwise:
          if (op.code == OpCode::where && !reads(0) && hides(op)) return false;
          return are_summed(op.results[0]);
        case OpKind::reduction:
          return op.axis == axis_ || are_summed(op.results[0]);
        case OpKind::memory:
          return false;  // nothing is stored beyond an axis
        case OpKind::control:
          return is_summed_behind(op, value);
        default:
          break;
      }
      const bool sums = op.code == OpCode::dot
                            ? (reads(0) || reads(1)) && f_[op.operands[0]].type.axes[1] == axis_
                            : op.axis == axis_;
      return sums || std::ranges::any_of(op.results, [&](ValueId v) { return are_summed(v); });
    });
  }

 private:
  /// What a loop starts from, and what its iterations yield, is what the next one carries.
  bool is_summed_behind(const Op& op, ValueId value) {
    return std::ranges::any_of(f_.ops, [&](const Op& loop) {
      if (loop.code != OpCode::loop) return false;
      const OpId yield = f_[loop.body].ops.back();
      if (&loop != &op && &f_[yield] != &op) return false;
      const std::size_t first = &loop == &op ? static_cast<std::size_t>(loop.bounds) : 0;
      for (std::size_t i = first; i < op.operands.size(); ++i)
        if (op.operands[i] == value && (are_summed(f_[loop.body].arguments[i - first + 1]) ||
                                        are_summed(loop.results[i - first])))
          return true;
      return false;
    });
  }

  [[nodiscard]] bool hides(const Op& where) const {
    NeutralAnalysis beyond(f_, axis_, NeutralAnalysis::Positions::beyond_axis);
    const ValueId condition =
        guard_of(f_, where) ? condition_behind_guard(f_, where) : where.operands[0];
    return condition && beyond.evaluate(condition).is(0);
  }

  const Function& f_;
  const AxisId axis_;
  std::set<ValueId> seen_;
};

}  // namespace

bool sums_rows_beyond_axis(const Function& f, ValueId tile) {
  return RowsBeyond(f, f[tile].type.axes[0]).are_summed(tile);
}

}  // namespace flashcore
