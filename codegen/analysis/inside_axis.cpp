#include "codegen/analysis/inside_axis.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "codegen/analysis/neutral.h"
#include "codegen/analysis/tile_guard.h"
#include "codegen/analysis/visit.h"
#include "dsl/ir/affine.h"

namespace flashcore {
namespace {

using namespace ir;

/// The most that a number comes to: lengths of axes, each taken so many times, and a number.
struct Most {
  std::int64_t number = 0;
  std::map<AxisId, std::int64_t> lengths = {};
};

/// Of a linear form whose positions lie on their axes, but for one at the length of `beyond`. None
/// where one of its scalars is no length.
std::optional<Most> most_of(const Function& f, const AffineForm& form, AxisId beyond = {}) {
  Most most{form.constant};
  const auto add_length = [&](AxisId axis, std::int64_t times) {
    if (const auto length = f[axis].fixed_length())
      most.number += times * *length;
    else
      most.lengths[axis] += times;
  };
  for (const auto& [scalar, times] : form.scalars) {
    const Op* extent = definition_as(f, scalar, OpCode::extent);
    if (!extent) return std::nullopt;
    add_length(extent->axis, times);
  }
  for (const auto& [axis, times] : form.positions) {
    if (axis != beyond && times < 0) continue;  // at position 0
    add_length(axis, times);
    if (axis != beyond) most.number -= times;
  }
  return most;
}

/// Whether the form is below 0 wherever its position along `axis` is the length of that or more.
bool is_negative_beyond(const Function& f, const AffineForm& form, AxisId axis) {
  const auto along = form.positions.find(axis);
  if (along == form.positions.end() || along->second > 0 || !form.quotients.empty()) return false;
  for (const auto& [other, times] : form.positions)
    if (other != axis && f[other].kind != AxisKind::parallel_tiles &&
        f[other].kind != AxisKind::parallel)
      return false;
  const std::optional<Most> most = most_of(f, form, axis);
  // No length is negative.
  const auto adds_nothing = [](const auto& term) { return term.second <= 0; };
  return most && most->number < 0 && std::ranges::all_of(most->lengths, adds_nothing);
}

/// One length at most, and not much else.
bool is_short(const Most& most) {
  constexpr std::int64_t little = 1 << 20;
  std::int64_t lengths = 0;
  for (const auto& [axis, times] : most.lengths) lengths += std::max<std::int64_t>(0, times);
  return lengths == 0 ? most.number < std::int64_t{1} << 31 : lengths == 1 && most.number < little;
}

/// Whether a mask hides what lies beyond an axis.
bool hides_beyond(const Function& f, AxisId axis, const Op& where) {
  NeutralAnalysis beyond(f, axis, NeutralAnalysis::Positions::beyond_axis);
  const ValueId condition =
      guard_of(f, where) ? condition_behind_guard(f, where) : where.operands[0];
  return condition && beyond.evaluate(condition).is(0);
}

/// Whether elements of a value that lie beyond an axis come into a sum; `seen` are the values that
/// this has been asked of.
bool are_summed(const Function& f, AxisId axis, ValueId value, std::set<ValueId>& seen) {
  if (!f[value].type.has(axis) || !seen.insert(value).second) return false;
  const auto any_summed = [&](const std::vector<ValueId>& values) {
    return std::ranges::any_of(values, [&](ValueId v) { return are_summed(f, axis, v, seen); });
  };
  return std::ranges::any_of(f.ops, [&](const Op& op) {
    const auto reads = [&](std::size_t i) { return op.operands[i] == value; };
    if (std::ranges::count(op.operands, value) == 0) return false;
    switch (kind_of(op.code)) {
      case OpKind::elementwise:
        if (op.code == OpCode::where && !reads(0) && hides_beyond(f, axis, op)) return false;
        return any_summed(op.results);
      case OpKind::reduction:
        return op.axis == axis || any_summed(op.results);
      case OpKind::memory:
        return false;  // nothing is stored beyond an axis
      case OpKind::control:
        // What a loop starts from, and what its iterations yield, is what the next one carries.
        return std::ranges::any_of(f.ops, [&](const Op& loop) {
          return loop.code == OpCode::loop &&
                 std::ranges::any_of(carried_by(f, loop), [&](const Carried& carried) {
                   return (carried.start == value || carried.next == value) &&
                          any_summed({carried.argument, carried.result});
                 });
        });
      default:
        break;
    }
    const bool sums = op.code == OpCode::dot ? (reads(0) || reads(1)) && inner_axis(f, op) == axis
                                             : op.axis == axis;
    return sums || any_summed(op.results);
  });
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
  AffineForm position_less = *form * -1;
  ++position_less.positions[axis];
  return std::ranges::all_of(std::array{*form, position_less}, [&](const AffineForm& difference) {
    const std::optional<Most> most = most_of(f, difference);
    return most && is_short(*most);
  });
}

bool sums_rows_beyond_axis(const Function& f, ValueId tile) {
  std::set<ValueId> seen;
  return are_summed(f, f[tile].type.axes[0], tile, seen);
}

}  // namespace flashcore
