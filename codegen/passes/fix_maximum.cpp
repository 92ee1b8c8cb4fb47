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
// same, and so would m + log2(l). The pass propagates "times E" and "plus D" through the operations
// behind the loop, and checks the values that are stored.
#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <optional>
#include <set>
#include <vector>

#include "codegen/analysis/rescaled_sums.h"
#include "codegen/analysis/value_bounds.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"
#include "dsl/ir/type_rules.h"

namespace flashcore {
namespace {

using namespace ir;

/// What becomes of a value as the reference grows by D: it is multiplied by E, exp2(-slope D), so
/// many times, or gets so many D added, a NaN where that is not known.
struct Change {
  int times = 0;
  double plus = 0;
  [[nodiscard]] bool known() const { return !std::isnan(plus); }
  /// Of what is at most multiplied.
  [[nodiscard]] Change scaled() const { return plus == 0 ? *this : Change{0, NAN}; }
  bool operator==(const Change&) const = default;
};
constexpr Change unknown{0, NAN};

class ReferenceChange {
 public:
  ReferenceChange(const Function& f, OpCode exponential, double slope)
      : f_(f), base_two_(exponential == OpCode::exp2), slope_(slope), probes_(f) {}

  void set(ValueId value, Change change) { changes_[value] = change; }

  [[nodiscard]] bool stores_nothing(BlockId block) const {
    return std::ranges::none_of(
        f_[block].ops, [&](OpId id) { return f_[id].code == OpCode::store && !probes_.has(id); });
  }

  /// Whether what the ops store does not change, and no region carries what does.
  bool holds(const std::vector<OpId>& ops) {
    return std::ranges::all_of(ops, [&](OpId id) {
      if (probes_.has(id)) return true;
      const Op& op = f_[id];
      const bool changes = any_use(op, [&](ValueId v) { return !same(v); });
      if (op.body) return !changes && holds(f_[op.body].ops);
      if (op.results.size() != 1) return !changes;
      changes_[op.results[0]] = changes ? derive(op) : Change{};
      return true;
    });
  }

 private:
  [[nodiscard]] Change of(ValueId value) const {
    const auto found = changes_.find(value);
    return found == changes_.end() ? Change{} : found->second;
  }
  [[nodiscard]] bool same(ValueId value) const { return of(value) == Change{}; }

  [[nodiscard]] Change derive(const Op& op) const {
    const auto operand = [&](std::size_t i) { return of(op.operands[i]); };
    switch (op.code) {
      case OpCode::transpose:
      case OpCode::reduce_sum:
        return operand(0).scaled();
      case OpCode::cast:
        return is_half(f_[op.results[0]].type.dtype) ? unknown : operand(0);
      case OpCode::neg:
        return {operand(0).times, -operand(0).plus};
      case OpCode::add:
        return sum(operand(0), operand(1), 1);
      case OpCode::sub:
        return sum(operand(0), operand(1), -1);
      case OpCode::mul:
        return product(op.operands[0], op.operands[1]);
      case OpCode::fma:
        return sum(product(op.operands[0], op.operands[1]), operand(2), 1);
      case OpCode::dot: {
        const Change made = product(op.operands[0], op.operands[1]);
        return op.operands.size() == 3 ? sum(made, operand(2), 1) : made;
      }
      case OpCode::div:
        return product(op.operands[0], op.operands[1], -1);
      case OpCode::reciprocal: {
        const Change a = operand(0).scaled();
        return {-a.times, a.plus};
      }
      case OpCode::log2:
      case OpCode::log: {
        const Change a = operand(0).scaled();
        const double units = base_two_ == (op.code == OpCode::log2) ? 1
                             : base_two_                            ? std::numbers::ln2
                                                                    : std::numbers::log2e;
        return {0, a.plus - slope_ * units * a.times};
      }
      case OpCode::exp2:
      case OpCode::exp:
        return raised(op);
      case OpCode::where:
        return choice(op);
      default:
        return is_comparison(op.code) ? comparison(op) : unknown;
    }
  }

  [[nodiscard]] Change comparison(const Op& op) const {
    for (const std::size_t i : {0, 1}) {
      const Change side = of(op.operands[i]);
      const ValueId other = op.operands[1 - i];
      // E is above zero, and so turns no sign. What was subtracted is finite whatever it is.
      if (is(other, 0) ? side.scaled().known() : side.known() && is_infinite(other)) return {};
    }
    return unknown;
  }

  [[nodiscard]] static Change sum(const Change& a, const Change& b, int sign) {
    if (a.times != b.times) return unknown;
    // A number of D that is all but nothing is what rounding of the constants left.
    const double plus = a.plus + sign * b.plus,
                 least = 1e-6 * std::max(std::abs(a.plus), std::abs(b.plus));
    return {a.times, std::abs(plus) <= least ? 0 : plus};
  }

  [[nodiscard]] Change product(ValueId a, ValueId b, int sign = 1) const {
    const Change x = of(a), y = of(b);
    if (x.plus == 0 && y.plus == 0) return {x.times + sign * y.times, 0};
    const double *left = constant_of(f_, a), *right = constant_of(f_, b);
    if (x.times != 0 || y.times != 0) return unknown;
    if (right && *right != 0) return {0, sign > 0 ? x.plus * *right : x.plus / *right};
    return left && sign > 0 ? Change{0, y.plus * *left} : unknown;
  }

  /// exp2(a + s D) is E so many times, if that is a whole number.
  [[nodiscard]] Change raised(const Op& op) const {
    const Change a = of(op.operands[0]);
    const double times = -a.plus / slope_;
    const bool whole = std::abs(times - std::round(times)) <= 1e-6;
    if (!whole || a.times != 0 || base_two_ != (op.code == OpCode::exp2)) return unknown;
    return {static_cast<int>(std::lround(times)), 0};
  }

  /// Zero and infinity stay what they are however often they are multiplied, and infinity whatever
  /// is added.
  [[nodiscard]] Change choice(const Op& op) const {
    if (!same(op.operands[0])) return unknown;
    const Change yes = of(op.operands[1]), no = of(op.operands[2]);
    if (yes == no) return yes;
    const auto stays = [&](ValueId value, const Change& as) {
      return is_infinite(value) || (as.plus == 0 && is(value, 0));
    };
    if (stays(op.operands[2], yes)) return yes;
    return stays(op.operands[1], no) ? no : unknown;
  }

  [[nodiscard]] bool is(ValueId value, double number) const { return is_number(f_, value, number); }
  [[nodiscard]] bool is_infinite(ValueId value) const {
    return is(value, INFINITY) || is(value, -INFINITY);
  }

  const Function& f_;
  const bool base_two_;
  const double slope_;
  const ProbeOps probes_;
  std::map<ValueId, Change> changes_;
};

/// The carried sums that are scaled as a carried maximum grows.
std::vector<std::size_t> sums_following(const CarriedValues& carried, std::size_t extreme) {
  std::vector<std::size_t> sums;
  for (std::size_t i = 0; i < carried.size(); ++i)
    if (carried[i] && carried[i]->factor && carried[i]->follows == extreme) sums.push_back(i);
  return sums;
}

/// Whether the outputs are independent of the number that a loop subtracts as its maximum `extreme`.
/// `carried` is what the loop at `position` carries; all that varies with the maximum are `sums` that
/// follow it with one slope. Stores of probes are left out: they show what was computed.
bool is_reference_free(const Function& f, std::size_t position, const CarriedValues& carried,
                       const std::vector<std::size_t>& sums, std::size_t extreme) {
  const Op& loop = f[f[f.body].ops[position]];
  const auto is_known = [](const auto& value) { return value.has_value(); };
  if (sums.empty() || !std::ranges::all_of(carried, is_known)) return false;
  const CarriedValue& first = *carried[sums[0]];
  for (const std::size_t i : sums)
    if (!first.slope || *first.slope == 0 || carried[i]->slope != first.slope ||
        carried[i]->exponential != first.exponential)
      return false;
  ReferenceChange change(f, first.exponential, *first.slope);
  for (const std::size_t i : sums) change.set(loop.results[i], {1, 0});
  change.set(loop.results[extreme], {0, 1});
  if (!change.stores_nothing(loop.body)) return false;
  const auto& ops = f[f.body].ops;
  return change.holds({ops.begin() + static_cast<std::ptrdiff_t>(position) + 1, ops.end()});
}

/// The powers of two that exponentials may reach. Up to 2^44, sums of 2^31 of them times values of
/// 2^52 are finite. Down to 2^-120 they are normal numbers of f32 and bf16; those of f16 end at
/// 2^-14 and 2^16.
struct Reach {
  double least, most;
};
constexpr Reach wide{-120, 44}, narrow{-14, 14};

/// By what an exponent of this base becomes one of two.
double exponents_of_two(OpCode exponential) {
  return exponential == OpCode::exp2 ? 1 : std::numbers::log2e;
}

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
  const double slope = std::abs(*sum.slope) * exponents_of_two(sum.exponential);
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
    const double unit = exponents_of_two(op->code), rounding = 1e-3;
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
