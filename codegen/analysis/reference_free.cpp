#include "codegen/analysis/reference_free.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

#include "codegen/passes/rewrite.h"
#include "dsl/ir/type_rules.h"

namespace flashcore {
namespace {

using namespace ir;

/// What becomes of a value as the reference grows by D: it is multiplied by E, exp2(-slope D), so
/// many times, or gets so many D added.
struct Change {
  int times = 0;
  double plus = 0;

  [[nodiscard]] bool none() const { return times == 0 && plus == 0; }
  bool operator==(const Change&) const = default;
};
using Known = std::optional<Change>;

class Analysis {
 public:
  Analysis(const Function& f, OpCode exponential, double slope)
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
      const Known known = changes ? derive(op) : Change{};
      changes_[op.results[0]] = known;
      return true;
    });
  }

 private:
  [[nodiscard]] Known of(ValueId value) const {
    const auto found = changes_.find(value);
    return found == changes_.end() ? Change{} : found->second;
  }
  [[nodiscard]] bool same(ValueId value) const { return of(value) == Change{}; }

  [[nodiscard]] Known derive(const Op& op) const {
    const auto operand = [&](std::size_t i) { return of(op.operands[i]); };
    switch (op.code) {
      case OpCode::transpose:
      case OpCode::reduce_sum:
        return scaled(operand(0));
      case OpCode::cast:
        return is_half(f_[op.results[0]].type.dtype) ? std::nullopt : operand(0);
      case OpCode::neg: {
        const Known a = operand(0);
        return a ? Known({a->times, -a->plus}) : a;
      }
      case OpCode::add:
        return sum(operand(0), operand(1), 1);
      case OpCode::sub:
        return sum(operand(0), operand(1), -1);
      case OpCode::mul:
        return product(op.operands[0], op.operands[1]);
      case OpCode::fma:
        return sum(product(op.operands[0], op.operands[1]), operand(2), 1);
      case OpCode::dot: {
        const Known made = product(op.operands[0], op.operands[1]);
        return op.operands.size() == 3 ? sum(made, operand(2), 1) : made;
      }
      case OpCode::div:
        return product(op.operands[0], op.operands[1], -1);
      case OpCode::reciprocal: {
        const Known a = scaled(operand(0));
        return a ? Known({-a->times, 0}) : a;
      }
      case OpCode::log2:
      case OpCode::log: {
        const Known a = scaled(operand(0));
        if (!a) return a;
        const double units = base_two_ == (op.code == OpCode::log2) ? 1
                             : base_two_                            ? std::numbers::ln2
                                                                    : std::numbers::log2e;
        return Change{0, -slope_ * units * a->times};
      }
      case OpCode::exp2:
      case OpCode::exp:
        return raised(op);
      case OpCode::where:
        return choice(op);
      default:
        return is_comparison(op.code) ? comparison(op) : std::nullopt;
    }
  }

  [[nodiscard]] Known comparison(const Op& op) const {
    for (const std::size_t i : {0, 1}) {
      const Known side = of(op.operands[i]);
      const ValueId other = op.operands[1 - i];
      // E is above zero, and so turns no sign. What was subtracted is finite whatever it is.
      if ((scaled(side) && is(other, 0)) || (side && is_infinite(other))) return Change{};
    }
    return std::nullopt;
  }

  [[nodiscard]] static Known scaled(const Known& a) { return a && a->plus == 0 ? a : std::nullopt; }

  [[nodiscard]] static Known sum(const Known& a, const Known& b, int sign) {
    if (!a || !b || a->times != b->times) return std::nullopt;
    // A number of D that is all but nothing is what rounding of the constants left.
    const double plus = a->plus + sign * b->plus,
                 least = 1e-6 * std::max(std::abs(a->plus), std::abs(b->plus));
    return Change{a->times, std::abs(plus) <= least ? 0 : plus};
  }

  [[nodiscard]] Known product(ValueId a, ValueId b, int sign = 1) const {
    const Known x = of(a), y = of(b);
    if (!x || !y) return std::nullopt;
    if (x->plus == 0 && y->plus == 0) return Change{x->times + sign * y->times, 0};
    const double *left = constant_of(f_, a), *right = constant_of(f_, b);
    if (x->times != 0 || y->times != 0) return std::nullopt;
    if (right && *right != 0) return Change{0, sign > 0 ? x->plus * *right : x->plus / *right};
    if (left && sign > 0) return Change{0, y->plus * *left};
    return std::nullopt;
  }

  /// exp2(a + s D) is E so many times, if that is a whole number.
  [[nodiscard]] Known raised(const Op& op) const {
    const Known a = of(op.operands[0]);
    if (!a || a->times != 0 || base_two_ != (op.code == OpCode::exp2)) return std::nullopt;
    const double times = -a->plus / slope_;
    if (std::abs(times - std::round(times)) > 1e-6) return std::nullopt;
    return Change{static_cast<int>(std::lround(times)), 0};
  }

  /// Zero and infinity stay what they are however often they are multiplied, and infinity whatever
  /// is added.
  [[nodiscard]] Known choice(const Op& op) const {
    if (!same(op.operands[0])) return std::nullopt;
    const Known yes = of(op.operands[1]), no = of(op.operands[2]);
    if (!yes || !no) return std::nullopt;
    if (*yes == *no) return yes;
    const auto stays = [&](ValueId value, const Change& as) {
      return is_infinite(value) || (as.plus == 0 && is(value, 0));
    };
    if (stays(op.operands[2], *yes)) return yes;
    if (stays(op.operands[1], *no)) return no;
    return std::nullopt;
  }

  [[nodiscard]] bool is(ValueId value, double number) const { return is_number(f_, value, number); }
  [[nodiscard]] bool is_infinite(ValueId value) const {
    return is(value, INFINITY) || is(value, -INFINITY);
  }

  const Function& f_;
  const bool base_two_;
  const double slope_;
  const ProbeOps probes_;
  std::map<ValueId, Known> changes_;
};

}  // namespace

bool is_reference_free(const Function& f, std::size_t position, const CarriedValues& carried,
                       std::size_t extreme) {
  const Op& loop = f[f[f.body].ops[position]];
  const CarriedValue* first = nullptr;
  for (const auto& value : carried) {
    if (!value) return false;
    if (!value->factor || value->follows != extreme) continue;
    if (!first) first = &*value;
    if (!value->slope || *value->slope == 0 || *value->slope != *first->slope ||
        value->exponential != first->exponential)
      return false;
  }
  if (!first) return false;
  Analysis analysis(f, first->exponential, *first->slope);
  for (std::size_t i = 0; i < carried.size(); ++i)
    if (carried[i]->factor && carried[i]->follows == extreme) analysis.set(loop.results[i], {1, 0});
  analysis.set(loop.results[extreme], {0, 1});
  if (!analysis.stores_nothing(loop.body)) return false;
  const auto& ops = f[f.body].ops;
  return analysis.holds({ops.begin() + static_cast<std::ptrdiff_t>(position) + 1, ops.end()});
}

}  // namespace flashcore
