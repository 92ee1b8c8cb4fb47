// A softmax subtracts the maximum of a row from its scores, so that no exponential overflows. If
// the scores are bounded, as softcapped ones are, the pass subtracts a constant instead, the same
// for all rows:
//
//   loop carry m, l, o { m' = max(m, reduce_max x)        becomes     loop carry l, o {
//                        d = exp2(m - m')
//                        p = exp2(x - m')                                  p = exp2(x - r)
//                        l' = l * d + sum p                                l' = l + sum p
//                        o' = o * d + p v }                                o' = o + p v }
//   o / l, m + log2 l                                                 o / l, r + log2 l
//
// The loop then compares nothing, rescales nothing, and no exponential waits for the maximum of a
// row. The outputs must not depend on the number that is subtracted (reference_free.h), and the
// exponentials must keep their precision: the constant is 0, or as near to 0 as their type allows.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <set>

#include "codegen/analysis/reference_free.h"
#include "codegen/analysis/rescaled_sums.h"
#include "codegen/analysis/value_bounds.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

/// The powers of two that exponentials may reach. Up to 2^44, sums of 2^31 of them times values of
/// 2^52 are finite. Down to 2^-120 they are normal numbers of f32 and bf16; those of f16 end at
/// 2^-14 and 2^16.
struct Reach {
  double least, most;
};
constexpr Reach wide{-120, 44}, narrow{-14, 14};

/// The exponentials, inside the loop and behind it, of what depends on its maximum `i`.
std::vector<const Op*> exponentials_of(const Function& f, const Op& loop, std::size_t i) {
  const Carried maximum = carried_by(f, loop)[i];
  std::set<ValueId> depends{maximum.next, maximum.argument, maximum.result};
  std::vector<const Op*> found;
  for_each_op(f, f.body, [&](const Op& op, BlockId) {
    if (!any_use(op, [&](ValueId v) { return depends.count(v) > 0; })) return;
    if (op.code == OpCode::exp || op.code == OpCode::exp2)
      found.push_back(&op);
    else if (!op.body)
      depends.insert(op.results.begin(), op.results.end());
  });
  return found;
}

/// That of the narrowest type that they are rounded to.
Reach reach_of(const Function& f, const std::vector<const Op*>& exponentials) {
  const auto narrows = [&](const Op& op) {
    return op.code == OpCode::cast && f[op.results[0]].type.dtype == DType::f16 &&
           std::ranges::count(exponentials, f.definition(op.operands[0]));
  };
  return any_op(f, f.body, narrows) ? narrow : wide;
}

/// Whether all exponentials but the factor, which will be one, stay in reach.
bool keeps_reach(const Function& f, const Op& loop, std::size_t i, ValueId factor,
                 double reference) {
  const std::vector<const Op*> exponentials = exponentials_of(f, loop, i);
  const Reach reach = reach_of(f, exponentials);
  ValueBounds bounds(f);
  const Carried maximum = carried_by(f, loop)[i];
  for (ValueId value : {maximum.next, maximum.result})
    bounds.assume(value, {reference, reference, false});
  return std::ranges::all_of(exponentials, [&](const Op* op) {
    if (op->results[0] == factor) return true;
    const Bounds exponent = bounds.of(op->operands[0]);
    const double unit = op->code == OpCode::exp2 ? 1 : std::numbers::log2e, rounding = 1e-3;
    return exponent.finite() && exponent.high * unit <= reach.most + rounding &&
           exponent.low * unit >= reach.least - rounding;
  });
}

/// The number to subtract instead of the carried maximum `i` of the loop at `position`.
std::optional<double> reference_for(Function& f, std::size_t position, const CarriedValues& carried,
                                    std::size_t i) {
  const Op& loop = f[f[f.body].ops[position]];
  if (!carried[i] || carried[i]->extreme != OpCode::max) return std::nullopt;
  // What it starts with takes part in the maximum, and sums that do not start at zero are
  // relative to that.
  if (!constant_of(f, initial_of(loop, i)) || !is_reference_free(f, position, carried, i))
    return std::nullopt;
  const CarriedValue* sum = nullptr;
  for (std::size_t k = 0; k < carried.size(); ++k) {
    if (!carried[k]->factor || carried[k]->follows != i) continue;
    sum = &*carried[k];
    if (!is_number(f, initial_of(loop, k), 0)) return std::nullopt;
  }
  const Carried maximum = carried_by(f, loop)[i];
  const Op& grown = *f.definition(maximum.next);
  const std::size_t other = grown.operands[0] == maximum.argument ? 1 : 0;
  const Bounds bounds = ValueBounds(f).of(grown.operands[other]);
  if (!bounds.finite()) return std::nullopt;
  // Where `slope` times the distance from the reference is the exponent: as near to 0 as the
  // reach allows.
  const double slope =
      std::abs(*sum->slope) * (sum->exponential == OpCode::exp2 ? 1 : std::numbers::log2e);
  const Reach reach = reach_of(f, exponentials_of(f, loop, i));
  const double least = bounds.high - reach.most / slope, most = bounds.low - reach.least / slope;
  if (least > most) return std::nullopt;
  const double reference = std::clamp(0.0, least, most);
  return keeps_reach(f, loop, i, sum->factor, reference) ? std::optional(reference) : std::nullopt;
}

/// The sum `next` of what is carried, times a factor, and something: without the factor.
void add_unscaled(Function& f, ValueId next, ValueId carried) {
  Op& op = *f.definition(next);
  if (op.code == OpCode::fma) {
    const ValueId added = op.operands[2];
    op.code = OpCode::add;
    op.operands = {carried, added};
    return;
  }
  for (ValueId& operand : op.operands)
    if (const Op* scaled = definition_as(f, operand, OpCode::mul);
        scaled && reads(*scaled, carried))
      operand = carried;
}

void replace_maximum(Function& f, std::size_t position, const CarriedValues& carried, std::size_t i,
                     double reference) {
  const OpId loop = f[f.body].ops[position];
  const BlockId body = f[loop].body;
  for (std::size_t k = 0; k < carried.size(); ++k)
    if (carried[k]->factor && carried[k]->follows == i)
      add_unscaled(f, yield_of(f, f[loop]).operands[k], f[body].arguments[k + 1]);
  const ValueId next = yield_of(f, f[loop]).operands[i];
  const TileType type = f[next].type;
  const std::string name = f[f[loop].results[i]].name;
  const ValueId constant = Builder(f, f.body, position).constant(reference, type.dtype, type.axes);
  f[constant].name = name;
  for (ValueId maximum : {next, f[body].arguments[i + 1], f[loop].results[i]})
    replace_uses(f, maximum, constant);
  drop_carried(f, loop, i);
}

}  // namespace

void fix_maximum(Function& f, const PassContext& context) {
  if (!context.schedule.fixed_maximum) return;
  for (std::size_t at = 0; at < f[f.body].ops.size(); ++at) {
    if (f[f[f.body].ops[at]].code != OpCode::loop) continue;
    const CarriedValues carried = carried_values(f, f[f[f.body].ops[at]]);
    for (std::size_t i = 0; i < carried.size(); ++i)
      if (const auto reference = reference_for(f, at, carried, i)) {
        replace_maximum(f, at, carried, i, *reference);
        context.note_numerics(
            "the softmax subtracts a constant instead of the maximum of a row (fixed_maximum)");
        break;
      }
  }
  remove_dead_ops(f);
}

}  // namespace flashcore
