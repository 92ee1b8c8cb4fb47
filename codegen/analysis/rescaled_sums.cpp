#include "codegen/analysis/rescaled_sums.h"

#include <algorithm>
#include <map>
#include <set>

#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

/// A product of values, with a sign.
struct Term {
  bool negative = false;
  std::vector<ValueId> factors;  // in order
  bool operator==(const Term&) const = default;
  auto operator<=>(const Term&) const = default;
};
using Terms = std::vector<Term>;

class Analysis {
 public:
  Analysis(const Function& f, const Op& loop)
      : f_(f), arguments_(f[loop.body].arguments), next_(last_of(f, loop.body).operands) {}

  CarriedValues run() {
    CarriedValues found(next_.size());
    for (std::size_t i = 0; i < next_.size(); ++i) found[i] = extreme(i);
    for (std::size_t i = 0; i < next_.size(); ++i)
      if (!found[i]) found[i] = sum(i, found);
    return found;
  }

 private:
  [[nodiscard]] ValueId carried(std::size_t i) const { return arguments_[i + 1]; }

  [[nodiscard]] std::optional<CarriedValue> extreme(std::size_t i) {
    const Op* op = f_.definition(next_[i]);
    if (!op || (op->code != OpCode::max && op->code != OpCode::min)) return std::nullopt;
    for (const std::size_t at : {0, 1})
      if (op->operands[at] == carried(i) && !varies(op->operands[1 - at]))
        return CarriedValue{.extreme = op->code};
    return std::nullopt;
  }

  /// next = carried * factor + added
  [[nodiscard]] std::optional<CarriedValue> sum(std::size_t i, const CarriedValues& known) {
    const auto made = carried_sum(f_, next_[i], carried(i));
    if (!made) return std::nullopt;
    const std::optional<Degree> degree =
        made->added ? degree_of(made->added) : degree_of_product(*f_.definition(next_[i]));
    if (made->factor) return rescaled(made->factor, degree, known);
    return degree && !degree->varies() ? std::optional(CarriedValue{}) : std::nullopt;
  }

  /// What an iteration adds: for an exponent that is followed, whether it is a multiple of
  /// exp(exponent).
  struct Degree {
    OpCode exponential{};
    Terms exponent;  ///< the terms that vary
    /// With what the loop carries.
    [[nodiscard]] bool varies() const { return exponential != OpCode{}; }
  };

  /// The factor is exp(h(m) - h(m')), what is added a multiple of exp(-h(m')).
  [[nodiscard]] std::optional<CarriedValue> rescaled(ValueId factor,
                                                     const std::optional<Degree>& degree,
                                                     const CarriedValues& known) {
    const Op* op = f_.definition(factor);
    if (!op || !degree || !degree->varies() || degree->exponential != op->code) return std::nullopt;
    const Terms exponent = terms(op->operands[0]);
    for (std::size_t j = 0; j < known.size(); ++j) {
      if (!known[j] || !known[j]->is_extreme()) continue;
      Terms grown = degree->exponent;  // -h(m'), and h(m) made of it
      for (Term term : degree->exponent) {
        std::replace(term.factors.begin(), term.factors.end(), next_[j], carried(j));
        std::sort(term.factors.begin(), term.factors.end());
        term.negative = !term.negative;
        grown.push_back(std::move(term));
      }
      std::sort(grown.begin(), grown.end());
      const auto varies_by_it = [&](const Term& term) {
        return std::ranges::all_of(term.factors,
                                   [&](ValueId v) { return v == next_[j] || !varies(v); });
      };
      if (grown == exponent && std::ranges::all_of(degree->exponent, varies_by_it))
        return CarriedValue{.factor = factor,
                            .follows = j,
                            .old_extreme = carried(j),
                            .new_extreme = next_[j],
                            .exponential = op->code,
                            .slope = slope(degree->exponent, next_[j])};
    }
    return std::nullopt;
  }

  /// Of -h(m): the number s, if h(m) = s m.
  [[nodiscard]] std::optional<double> slope(const Terms& terms, ValueId extreme) const {
    double sum = 0;
    for (const Term& term : terms) {
      double product = term.negative ? 1 : -1;
      int times = 0;
      for (ValueId factor : term.factors) {
        if (factor == extreme)
          ++times;
        else if (const double* number = constant_of(f_, factor))
          product *= *number;
        else
          return std::nullopt;
      }
      if (times != 1) return std::nullopt;
      sum += product;
    }
    return sum;
  }

  /// A value as a sum of products, sorted. Of what does not vary nothing needs to be known.
  [[nodiscard]] Terms terms(ValueId value) {
    const Op* op = f_.definition(value);
    const bool atom = !op || !varies(value) || std::ranges::find(next_, value) != next_.end();
    Terms found;
    if (!atom && (op->code == OpCode::add || op->code == OpCode::sub)) {
      found = terms(op->operands[0]);
      append(found, terms(op->operands[1]), op->code == OpCode::sub);
    } else if (!atom && op->code == OpCode::neg) {
      append(found, terms(op->operands[0]), true);
    } else if (!atom && (op->code == OpCode::mul || op->code == OpCode::fma)) {
      for (const Term& a : terms(op->operands[0]))
        for (const Term& b : terms(op->operands[1])) {
          Term product{a.negative != b.negative, a.factors};
          product.factors.insert(product.factors.end(), b.factors.begin(), b.factors.end());
          std::sort(product.factors.begin(), product.factors.end());
          found.push_back(std::move(product));
        }
      if (op->code == OpCode::fma) append(found, terms(op->operands[2]), false);
    } else {
      found = {{false, {value}}};
    }
    std::sort(found.begin(), found.end());
    return found;
  }
  static void append(Terms& terms, const Terms& more, bool negative) {
    for (Term term : more) {
      term.negative = term.negative != negative;
      terms.push_back(std::move(term));
    }
  }

  /// Of the product of an op's operands.
  [[nodiscard]] std::optional<Degree> degree_of_product(const Op& op) {
    const std::optional<Degree> a = degree_of(op.operands[0]), b = degree_of(op.operands[1]);
    if (!a || !b || (a->varies() && b->varies())) return std::nullopt;
    return a->varies() ? a : b;
  }

  /// None where it cannot be said how a value varies.
  [[nodiscard]] std::optional<Degree> degree_of(ValueId value) {
    if (!varies(value)) return Degree{};
    const Op* op = f_.definition(value);
    if (!op) return std::nullopt;
    switch (op->code) {
      case OpCode::reduce_sum:
      case OpCode::cast:
      case OpCode::neg:
        return degree_of(op->operands[0]);
      case OpCode::mul:
        return degree_of_product(*op);
      case OpCode::dot:
        return op->operands.size() == 2 ? degree_of_product(*op) : std::nullopt;
      case OpCode::where: {
        const bool zero = is_number(f_, op->operands[2], 0);
        return varies(op->operands[0]) || !zero ? std::nullopt : degree_of(op->operands[1]);
      }
      case OpCode::exp:
      case OpCode::exp2: {
        Degree degree{op->code, {}};
        for (const Term& term : terms(op->operands[0]))
          if (std::ranges::any_of(term.factors, [&](ValueId v) { return varies(v); }))
            degree.exponent.push_back(term);
        return degree;
      }
      default:
        return std::nullopt;
    }
  }

  /// Whether a value of the region depends on what the loop carries.
  [[nodiscard]] bool varies(ValueId value) {
    return remembered(varies_, value, [&] {
      const Op* op = f_.definition(value);
      return std::find(arguments_.begin() + 1, arguments_.end(), value) != arguments_.end() ||
             (op && any_use(*op, [&](ValueId v) { return varies(v); }));
    });
  }

  const Function& f_;
  const std::vector<ValueId> arguments_, next_;
  std::map<ValueId, bool> varies_;
};

}  // namespace

CarriedValues carried_values(const Function& f, const Op& loop) { return Analysis(f, loop).run(); }

bool order_matters(const Function& f, const Op& loop) {
  if (loop.unordered) return false;
  if (std::ranges::any_of(carried_values(f, loop), [](const auto& value) { return !value; }))
    return true;
  const std::vector<ValueId>& arguments = f[loop.body].arguments;
  std::set<ValueId> depends(arguments.begin() + 1, arguments.end());
  bool matters = false;
  for_each_op(f, loop.body, [&](const Op& op, BlockId) {
    const bool reads = any_use(op, [&](ValueId v) { return depends.contains(v); });
    if (reads) depends.insert(op.results.begin(), op.results.end());
    if (reads && op.body) depends.insert(f[op.body].arguments.begin(), f[op.body].arguments.end());
    // Probes show what an iteration has, in whatever order.
    if (op.code != OpCode::store || f[op.tensor].unwritten) return;
    const bool own = std::ranges::any_of(
        op.coordinates, [&](const Coordinate& at) { return f.origin(at.axis) == loop.axis; });
    if (op.accumulation == Accumulation::any_order) return;
    matters = matters || reads || !own || op.accumulation == Accumulation::in_order;
  });
  return matters;
}

}  // namespace flashcore
