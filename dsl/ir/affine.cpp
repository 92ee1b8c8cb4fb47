#include "dsl/ir/affine.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>

#include "dsl/ir/nest.h"

namespace flashcore {

using namespace ir;

namespace {

/// The forms of one value and of what it is made of, each derived once: values may be shared.
class Forms {
 public:
  explicit Forms(const Function& f) : f_(f) {}

  const std::optional<AffineForm>& of(ValueId value) {
    if (const auto found = known_.find(value); found != known_.end()) return found->second;
    std::optional<AffineForm> form = derive(value);
    if (form && !is_small(*form)) form.reset();
    return known_[value] = std::move(form);
  }

 private:
  /// Whether products by a number of 32 bits stay in 64.
  static bool is_small(const AffineForm& form) {
    const auto small = [](std::int64_t x) { return std::abs(x) <= std::int64_t{1} << 31; };
    bool all = small(form.constant);
    for_each_kind(form, [&](const auto& terms) {
      for (const auto& [atom, coefficient] : terms) all = all && small(coefficient);
    });
    return all;
  }

  std::optional<AffineForm> derive(ValueId value) {
    AffineForm atom;
    atom.scalars[value] = 1;
    const Op* op = computation_of(f_, value);
    const bool scalar = f_[value].type.is_scalar() && f_[value].type.dtype == DType::i32;
    if (!op) return scalar ? std::optional(atom) : std::nullopt;
    const auto operand = [&](std::size_t i) { return of(op->operands[i]); };
    switch (op->code) {
      case OpCode::constant:
        return AffineForm{{}, {}, static_cast<std::int64_t>(op->number)};
      case OpCode::index:
        if (scalar) return atom;
        return AffineForm{{{op->axis, 1}}, {}, 0};
      case OpCode::neg: {
        const auto a = operand(0);
        return a ? std::optional(*a * -1) : std::nullopt;
      }
      case OpCode::add:
      case OpCode::sub: {
        const auto a = operand(0), b = operand(1);
        if (!a || !b) return scalar ? std::optional(atom) : std::nullopt;
        return *a + *b * (op->code == OpCode::add ? 1 : -1);
      }
      case OpCode::mul:
        for (std::size_t i : {0, 1}) {
          const Op* factor = f_.definition(op->operands[i]);
          if (factor && factor->code == OpCode::constant)
            if (const auto a = operand(1 - i))
              return *a * static_cast<std::int64_t>(factor->number);
        }
        return scalar ? std::optional(atom) : std::nullopt;
      case OpCode::div: {
        if (scalar) return atom;
        const Op *position = f_.definition(op->operands[0]), *by = f_.definition(op->operands[1]);
        if (!position || position->code != OpCode::index || !by || by->code != OpCode::constant ||
            by->number <= 1)
          return std::nullopt;
        AffineForm quotient;
        quotient.quotients[{position->axis, static_cast<std::int64_t>(by->number)}] = 1;
        return quotient;
      }
      default:
        return scalar ? std::optional(atom) : std::nullopt;
    }
  }

  const Function& f_;
  std::map<ValueId, std::optional<AffineForm>> known_;
};

/// The terms of a condition. A part of it that is shared counts once: saying it again adds nothing.
class Terms {
 public:
  explicit Terms(const Function& f) : f_(f), forms_(f) {}

  void add(ValueId condition) {
    if (!seen_.insert(condition).second) return;
    const Op* op = computation_of(f_, condition);
    if (!op) {
      result_.complete = false;
      return;
    }
    switch (op->code) {
      case OpCode::logical_and:
        for (ValueId part : op->operands) add(part);
        return;
      case OpCode::lt:
        return at_least(op->operands[1], op->operands[0], 1);
      case OpCode::le:
        return at_least(op->operands[1], op->operands[0], 0);
      case OpCode::gt:
        return at_least(op->operands[0], op->operands[1], 1);
      case OpCode::ge:
        return at_least(op->operands[0], op->operands[1], 0);
      case OpCode::eq:
        at_least(op->operands[0], op->operands[1], 0);
        return at_least(op->operands[1], op->operands[0], 0);
      default:
        result_.complete = false;
    }
  }

  AffineCondition take() { return std::move(result_); }

 private:
  /// a - b - slack >= 0
  void at_least(ValueId a, ValueId b, std::int64_t slack) {
    const auto left = forms_.of(a), right = forms_.of(b);
    if (!left || !right) {
      result_.complete = false;
      return;
    }
    AffineForm form = *left + *right * -1;
    form.constant -= slack;
    result_.terms.push_back(std::move(form));
  }

  const Function& f_;
  Forms forms_;
  std::set<ValueId> seen_;
  AffineCondition result_;
};

}  // namespace

AffineForm& AffineForm::operator+=(const AffineForm& other) {
  const auto add = [](auto& terms, const auto& more) {
    for (const auto& [atom, coefficient] : more) terms[atom] += coefficient;
    std::erase_if(terms, [](const auto& term) { return term.second == 0; });
  };
  add(positions, other.positions);
  add(quotients, other.quotients);
  add(scalars, other.scalars);
  constant += other.constant;
  return *this;
}

AffineForm& AffineForm::operator*=(std::int64_t factor) {
  for_each_kind(*this, [&](auto& terms) {
    for (auto& [atom, coefficient] : terms) coefficient *= factor;
  });
  constant *= factor;
  return *this;
}

std::optional<AffineForm> affine_form(const Function& f, ValueId value) {
  return Forms(f).of(value);
}

AffineCondition affine_condition(const Function& f, ValueId condition) {
  Terms terms(f);
  terms.add(condition);
  return terms.take();
}

}  // namespace flashcore
