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
// row. The exponentials must keep their precision: the constant is 0, or as near to 0 as their type
// allows. And the outputs must not depend on the number that is subtracted. If it were m + D instead of
// m, l would be divided by exp2(D), and so would every other sum relative to m. But o / l would stay the
// same, and so would m + log2(l). The pass follows these changes through the operations behind the
// loop (codegen/analysis/changes.h), and checks the values that are stored.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "codegen/analysis/changes.h"
#include "codegen/analysis/rescaled_sums.h"
#include "codegen/analysis/value_bounds.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

/// Whether what ops store does not change, and no region carries what does. Stores of probes are left
/// out: they show what was computed.
bool keep_outputs(const Function& f, const ProbeOps& probes, std::span<const OpId> ops,
                  Changes& changes) {
  return std::ranges::all_of(ops, [&](OpId id) {
    const Op& op = f[id];
    if (probes.has(id) || (!op.body && op.results.size() == 1)) return true;
    const bool same = !any_use(op, [&](ValueId v) { return !changes.same(v); });
    const auto keeps = [&](BlockId region) {
      return keep_outputs(f, probes, f[region].ops, changes);
    };
    return same && std::ranges::all_of(Regions(op), keeps);
  });
}

/// The carried sums that are scaled as a carried maximum grows.
std::vector<std::size_t> sums_following(const CarriedValues& carried, std::size_t extreme) {
  std::vector<std::size_t> sums;
  for (std::size_t i = 0; i < carried.size(); ++i)
    if (carried[i] && carried[i]->factor && carried[i]->follows == extreme) sums.push_back(i);
  return sums;
}

/// Whether the outputs are independent of the number that a loop subtracts as its maximum `extreme`.
/// `carried` is what the loop at `position` carries; all that varies with the maximum are `sums` that
/// follow it with one slope.
bool is_reference_free(const Function& f, std::size_t position, const CarriedValues& carried,
                       const std::vector<std::size_t>& sums, std::size_t extreme) {
  const std::span<const OpId> ops = f[f.body].ops;
  const Op& loop = f[ops[position]];
  const auto is_known = [](const auto& value) { return value.has_value(); };
  if (sums.empty() || !std::ranges::all_of(carried, is_known)) return false;
  const std::optional<double> slope = carried[sums[0]]->slope;
  const auto has_slope = [&](std::size_t i) { return carried[i]->slope == slope; };
  if (!slope || *slope == 0 || !std::ranges::all_of(sums, has_slope)) return false;
  // As what is subtracted grows by 1.
  Changes changes(f, /*inside=*/false);
  for (const std::size_t i : sums) changes.assume(loop.results[i], {{{{}, -*slope}}, {}});
  changes.assume(loop.results[extreme], {{}, {{{}, 1}}});
  const ProbeOps probes(f);
  const auto stores = [&](OpId id) { return f[id].code == OpCode::store && !probes.has(id); };
  return std::ranges::none_of(f[loop.body].ops, stores) &&
         keep_outputs(f, probes, ops.subspan(position + 1), changes);
}

/// The powers of two that exponentials may reach. Up to 2^44, sums of 2^31 of them times values of
/// 2^52 are finite. Down to 2^-120 they are normal numbers of f32 and bf16; those of f16 end at
/// 2^-14 and 2^16.
struct Reach {
  double least, most;
};
constexpr Reach wide{-120, 44}, narrow{-14, 14};

/// The exponentials, inside the loop and behind it, of what depends on its maximum.
std::vector<const Op*> exponentials_of(const Function& f, const Carried& maximum) {
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

/// The number to subtract instead of the carried maximum `i` of the loop at `position`.
std::optional<double> reference_for(const Function& f, std::size_t position,
                                    const CarriedValues& carried, std::size_t i) {
  const Op& loop = f[f[f.body].ops[position]];
  const std::vector<std::size_t> sums = sums_following(carried, i);
  const auto starts_at_zero = [&](std::size_t k) { return is_number(f, initial_of(loop, k), 0); };
  // What it starts with takes part in the maximum, and sums that do not start at zero are
  // relative to that.
  if (!carried[i] || carried[i]->extreme != OpCode::max || !constant_of(f, initial_of(loop, i)) ||
      !std::ranges::all_of(sums, starts_at_zero) ||
      !is_reference_free(f, position, carried, sums, i))
    return std::nullopt;
  const CarriedValue& sum = *carried[sums.back()];
  const Carried maximum = carried_by(f, loop)[i];
  const Op& grown = *f.definition(maximum.next);
  const Bounds scores =
      ValueBounds(f).of(grown.operands[grown.operands[0] == maximum.argument ? 1 : 0]);
  if (!scores.finite()) return std::nullopt;
  // Where `slope` times the distance from the reference is the exponent: as near to 0 as the
  // reach allows.
  const double slope = std::abs(*sum.slope);
  const std::vector<const Op*> exponentials = exponentials_of(f, maximum);
  const Reach reach = reach_of(f, exponentials);
  const double least = scores.high - reach.most / slope, most = scores.low - reach.least / slope;
  if (least > most) return std::nullopt;
  const double reference = std::clamp(0.0, least, most);
  ValueBounds bounds(f);
  for (ValueId value : {maximum.next, maximum.result})
    bounds.assume(value, {reference, reference, false});
  const auto keeps_reach = [&](const Op* op) {
    if (op->results[0] == sum.factor) return true;  // it will be one
    const Bounds exponent = bounds.of(op->operands[0]);
    const double unit = op->code == OpCode::exp2 ? 1 : std::numbers::log2e, rounding = 1e-3;
    return exponent.finite() && exponent.high * unit <= reach.most + rounding &&
           exponent.low * unit >= reach.least - rounding;
  };
  return std::ranges::all_of(exponentials, keeps_reach) ? std::optional(reference) : std::nullopt;
}

/// The sum `next` of what is carried, times a factor, and something: without the factor.
void add_unscaled(Function& f, ValueId next, ValueId carried) {
  Op& op = *f.definition(next);
  const CarriedSum sum = *carried_sum(f, next, carried);
  if (sum.scaled) return replace_use(op, sum.scaled, carried);
  op.code = OpCode::add;
  op.operands = {carried, sum.added};
}

void replace_maximum(Function& f, std::size_t position, const CarriedValues& carried, std::size_t i,
                     double reference) {
  const OpId loop = f[f.body].ops[position];
  const BlockId body = f[loop].body;
  for (const std::size_t k : sums_following(carried, i))
    add_unscaled(f, last_of(f, body).operands[k], f[body].arguments[k + 1]);
  const ValueId next = last_of(f, body).operands[i];
  const TileType type = f[next].type;
  const std::string name = f[f[loop].results[i]].name;
  const ValueId constant =
      named(f, Builder(f, f.body, position).constant(reference, type.dtype, type.axes), name);
  for (ValueId maximum : {next, f[body].arguments[i + 1], f[loop].results[i]})
    replace_uses(f, maximum, constant);
  drop_carried(f, loop, i);
}

}  // namespace

void fix_maximum(Function& f, const PassContext& context) {
  for (std::size_t at = 0; at < f[f.body].ops.size(); ++at) {
    if (f[f[f.body].ops[at]].code != OpCode::loop) continue;
    const CarriedValues carried = carried_values(f, f[f[f.body].ops[at]]);
    for (std::size_t i = 0; i < carried.size(); ++i)
      if (const auto reference = reference_for(f, at, carried, i)) {
        replace_maximum(f, at, carried, i, *reference);
        context.note_numerics(
            "the softmax subtracts a constant instead of the maximum of a row, since scores are "
            "bounded");
        break;
      }
  }
  remove_dead_ops(f);
}

}  // namespace flashcore
