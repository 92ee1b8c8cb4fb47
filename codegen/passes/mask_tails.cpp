// The last tile of an axis may reach beyond its true extent. Loads fill the rest with zeros, so a
// product over the axis needs no mask as long as both operands are zero there. A maximum needs -inf
// there, and values computed from -inf are usually neutral again (exp2 of it is 0): so one `where`
// at the first reduction is enough for a whole softmax. The pass inserts it, and proves that the
// rest needs none.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "codegen/analysis/neutral.h"
#include "codegen/analysis/warp_partition.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

/// The number that contributes nothing to what `op` does along `axis`, if the op combines along it.
std::optional<double> neutral_for(const Function& f, const Op& op, AxisId axis) {
  if ((op.code == OpCode::dot ? inner_axis(f, op) : op.axis) != axis) return std::nullopt;
  const bool integers = !op.operands.empty() && f[op.operands[0]].type.dtype == DType::i32;
  switch (op.code) {
    case OpCode::reduce_max:
      return integers ? -2147483648.0 : -INFINITY;
    case OpCode::reduce_min:
      return integers ? 2147483647 : INFINITY;
    case OpCode::reduce_sum:
    case OpCode::dot:
      return 0;
    default:
      return std::nullopt;
  }
}

/// Whether the value is a `where` that gives `neutral` to what it hides.
bool is_mask(const Function& f, ValueId value, double neutral) {
  const Op* op = definition_as(f, value, OpCode::where);
  return op && f[value].type.dtype == DType::f32 && is_number(f, op->operands[2], neutral);
}

/// Puts `neutral` into the elements of `value` beyond the axis. Joins the condition of a `where`
/// that already does the like, so that an unmasked part of a loop drops both at once.
ValueId mask_value(Builder& b, ValueId value, AxisId axis, double neutral) {
  Function& f = b.function();
  if (const Op* made_by = f.definition(value)) b.at(made_by->where);
  ValueId inside = b.elementwise(OpCode::lt, {b.index(axis), b.extent(axis)});
  ValueId seen = value, fill;
  if (is_mask(f, value, neutral)) {
    const std::vector<ValueId> mask = f.definition(value)->operands;
    inside = b.elementwise(OpCode::logical_and, {mask[0], inside});
    seen = mask[1];
    fill = mask[2];
  } else {
    fill = b.constant(neutral, f[value].type.dtype);
  }
  return named(f, b.where(inside, seen, fill), f[value].name);
}

/// The cast that an operand is a transpose of, in the same block; else null.
const Op* turned_cast(const Function& f, BlockId block, ValueId value) {
  const Op* cast = definition_as(f, operand_root(f, value).value, OpCode::cast);
  const bool turned = cast && cast->results[0] != value;
  return turned && made_in(f, block, cast->results[0]) ? cast : nullptr;
}

using Choices = std::map<ValueId, Fact>;

/// A `where` that `value` is computed from, whose condition beyond the axis is not known and both of whose
/// branches are numbers there; null if there is none.
const Op* open_choice(const Function& f, ValueId value, NeutralAnalysis& analysis,
                      std::set<ValueId>& seen) {
  const Op* op = f.definition(value);
  if (!op || !seen.insert(value).second || analysis.evaluate(value).number) return nullptr;
  const auto is_number = [&](std::size_t k) {
    return analysis.evaluate(op->operands[k]).number.has_value();
  };
  if (op->code == OpCode::where && is_number(1) && is_number(2)) return op;
  for (const ValueId operand : op->operands)
    if (const Op* found = open_choice(f, operand, analysis, seen)) return found;
  return nullptr;
}

/// Whether `value` is a finite number beyond the axis, whichever branch each `where` takes there: a score
/// of zeros that a causal mask may hide is 0 or -inf, so its weight is 1 or 0.
bool is_finite(const Function& f, ValueId value, AxisId axis, const Choices& chosen = {}) {
  constexpr std::size_t most_choices = 4;
  NeutralAnalysis analysis(f, axis, NeutralAnalysis::Positions::beyond_axis);
  for (const auto& [choice, branch] : chosen) analysis.assume(choice, branch);
  if (const std::optional<double> number = analysis.evaluate(value).number)
    return std::isfinite(*number);
  std::set<ValueId> seen;
  const Op* choice = open_choice(f, value, analysis, seen);
  if (!choice || chosen.size() == most_choices) return false;
  return std::ranges::all_of(std::array{choice->operands[1], choice->operands[2]}, [&](ValueId v) {
    Choices with = chosen;
    with[choice->results[0]] = analysis.evaluate(v);
    return is_finite(f, value, axis, with);
  });
}

/// A finite number beyond the axis, which a product multiplies by the other operand's zeros there.
bool meets_zeros(const Function& f, const Op& op, std::size_t k, AxisId axis) {
  if (op.code != OpCode::dot) return false;
  NeutralAnalysis analysis(f, axis, NeutralAnalysis::Positions::beyond_axis);
  return analysis.evaluate(op.operands[1 - k]).is(0) && is_finite(f, op.operands[k], axis);
}

void mask_axis(Function& f, BlockId block, AxisId axis) {
  for (std::size_t i = 0; i < f[block].ops.size(); ++i) {
    const OpId id = f[block].ops[i];
    if (f[id].body) mask_axis(f, f[id].body, axis);
    const auto neutral = neutral_for(f, f[id], axis);
    if (!neutral) continue;
    const std::size_t operands = f[id].code == OpCode::dot ? 2 : 1;
    for (std::size_t k = 0; k < operands; ++k) {
      const ValueId value = f[id].operands[k];
      NeutralAnalysis analysis(f, axis, NeutralAnalysis::Positions::beyond_axis);
      if (analysis.evaluate(value).is(*neutral) || meets_zeros(f, f[id], k, axis)) continue;
      // A product's operand stays a cast, which is what packs it into registers. What is cast in front
      // of a transpose is masked there, for all that read it, and so is what a mask is there for. No whole
      // number is infinite.
      const Op* turned = turned_cast(f, block, value);
      const Op* cast = turned ? turned : definition_as(f, value, OpCode::cast);
      if (cast && f[cast->operands[0]].type.dtype == DType::i32 && std::isinf(*neutral))
        cast = nullptr;
      const ValueId old = cast ? cast->results[0] : value,
                    source = cast ? cast->operands[0] : value;
      const bool early = turned || (!cast && is_mask(f, value, *neutral));
      const std::size_t before = f[block].ops.size();
      Builder b = early && made_in(f, block, old) ? behind(f, block, f[old].definition)
                                                  : Builder(f, block, i);
      ValueId masked = mask_value(b, source, axis, *neutral);
      if (cast) masked = b.cast(masked, f[old].type.dtype);
      replace_uses_behind(b, old, masked);
      i += f[block].ops.size() - before;
    }
  }
}

}  // namespace

void mask_tails(Function& f, const PassContext& context) {
  for (std::size_t i = 0; i < f.axes.size(); ++i)
    if (f.axes[i].kind != AxisKind::parallel && f.axes[i].may_overrun())
      mask_axis(f, f.body, AxisId(i));
  simplify(f, context);
}

}  // namespace flashcore
