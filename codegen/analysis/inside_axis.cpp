#include "codegen/analysis/inside_axis.h"

#include <algorithm>
#include <map>
#include <set>

#include "codegen/analysis/neutral.h"
#include "codegen/analysis/tile_guard.h"
#include "codegen/analysis/visit.h"
#include "dsl/ir/affine.h"

namespace flashcore {
namespace {

using namespace ir;

/// A number plus lengths of axes, each taken so many times.
class Lengths {
 public:
  explicit Lengths(const Function& f) : f_(f) {}

  void add(std::int64_t number) { number_ += number; }
  void add(std::int64_t times, AxisId axis) {
    if (const auto length = f_[axis].fixed_length())
      number_ += times * *length;
    else
      times_[axis] += times;
  }
  void add_scalars(const AffineForm& form, int sign = 1) {
    for (const auto& [scalar, times] : form.scalars) {
      const Op* op = f_.definition(scalar);
      if (op && op->code == OpCode::extent)
        add(sign * times, op->axis);
      else
        known_ = false;
    }
  }
  /// No length is negative.
  [[nodiscard]] bool is_negative() const {
    return known_ && number_ < 0 && std::all_of(times_.begin(), times_.end(), [](const auto& term) {
             return term.second <= 0;
           });
  }
  /// One length at most, and not much else.
  [[nodiscard]] bool is_short() const {
    constexpr std::int64_t little = 1 << 20;
    std::int64_t lengths = 0;
    for (const auto& [axis, times] : times_) lengths += std::max<std::int64_t>(0, times);
    return known_ &&
           (lengths == 0 ? number_ < std::int64_t{1} << 31 : lengths == 1 && number_ < little);
  }

 private:
  const Function& f_;
  bool known_ = true;
  std::int64_t number_ = 0;
  std::map<AxisId, std::int64_t> times_;
};

/// Adds the most that a position comes to, times a number.
void add_most(Lengths& sum, AxisId axis, std::int64_t times) {
  if (times < 0) return;  // at position 0
  sum.add(times, axis);
  sum.add(-times);
}

/// Whether the form is below 0 wherever its position along `axis` is the length of that or more.
bool is_negative_beyond(const Function& f, const AffineForm& form, AxisId axis) {
  const auto along = form.positions.find(axis);
  if (along == form.positions.end() || along->second > 0 || !form.quotients.empty()) return false;
  Lengths most(f);
  most.add(form.constant);
  most.add_scalars(form);
  most.add(along->second, axis);
  for (const auto& [other, times] : form.positions) {
    if (other == axis) continue;
    if (f[other].kind != AxisKind::parallel_tiles && f[other].kind != AxisKind::parallel)
      return false;
    add_most(most, other, times);
  }
  return most.is_negative();
}

}  // namespace

bool fails_beyond(const Function& f, ValueId condition, AxisId axis) {
  const AffineCondition all = affine_condition(f, condition);
  return std::any_of(all.terms.begin(), all.terms.end(),
                     [&](const AffineForm& form) { return is_negative_beyond(f, form, axis); });
}

bool leaves_room(const Function& f, ValueId number, AxisId axis) {
  const std::optional<AffineForm> form = affine_form(f, number);
  if (!form || !form->quotients.empty()) return false;
  for (const int sign : {1, -1}) {
    Lengths most(f);
    most.add(sign * form->constant);
    most.add_scalars(*form, sign);
    for (const auto& [other, times] : form->positions) add_most(most, other, sign * times);
    if (sign < 0) add_most(most, axis, 1);
    if (!most.is_short()) return false;
  }
  return true;
}

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
          return is_summed_behind(value);
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
  bool is_summed_behind(ValueId value) {
    return std::ranges::any_of(f_.ops, [&](const Op& loop) {
      if (loop.code != OpCode::loop) return false;
      return std::ranges::any_of(carried_by(f_, loop), [&](const Carried& carried) {
        return (carried.start == value || carried.next == value) &&
               (are_summed(carried.argument) || are_summed(carried.result));
      });
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
