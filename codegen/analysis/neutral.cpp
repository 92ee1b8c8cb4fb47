#include "codegen/analysis/neutral.h"

#include <cmath>

#include "codegen/analysis/inside_axis.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {

using namespace ir;

namespace {

Fact add(const Fact& a, const Fact& b) {
  if (a.number && b.number) return Fact::of(*a.number + *b.number);
  if (a.is(0)) return b;
  if (b.is(0)) return a;
  for (const Fact& x : {a, b})
    if (x.number && std::isinf(*x.number) && a.known() && b.known()) return x;
  return {};
}

Fact negate(const Fact& a) { return a.number ? Fact::of(-*a.number) : Fact{}; }

Fact multiply(const Function& f, ValueId va, const Fact& a, ValueId vb, const Fact& b) {
  if (a.number && b.number) return Fact::of(*a.number * *b.number);
  if (a.is(0) || b.is(0)) return Fact::of(0);
  if (a.is(1)) return b;
  if (b.is(1)) return a;
  if (a.number && std::isinf(*a.number) && is_positive(f, vb)) return a;
  if (b.number && std::isinf(*b.number) && is_positive(f, va)) return b;
  return {};
}

Fact extremum(const Fact& a, const Fact& b, double neutral) {
  if (a.is(neutral)) return b;
  if (b.is(neutral)) return a;
  if (a.number && b.number)
    return Fact::of(neutral < 0 ? std::fmax(*a.number, *b.number)
                                : std::fmin(*a.number, *b.number));
  return a == b ? a : Fact{};
}

}  // namespace

Fact NeutralAnalysis::evaluate(ValueId value) {
  const auto found = facts_.find(value);
  if (found != facts_.end()) return found->second;
  return facts_[value] = derive(value);
}

Fact NeutralAnalysis::derive(ValueId value) {
  const Op* op = f_.definition(value);
  const TileType& type = f_[value].type;
  const bool whole_tile = positions_ == Positions::whole_tile;
  if (op && op->code == OpCode::constant) return Fact::of(op->number);
  if (!op || (!whole_tile && !type.has(axis_))) return Fact::same_as(value);
  const auto operand = [&](std::size_t i) { return evaluate(op->operands[i]); };

  switch (op->code) {
    case OpCode::load:
      if (whole_tile) return Fact::same_as(value);
      return Fact::of(0);
    case OpCode::transpose:
      return operand(0);
    case OpCode::cast:
      return operand(0).number ? operand(0) : Fact::same_as(value);
    case OpCode::neg:
      return negate(operand(0));
    case OpCode::exp2:
      return operand(0).number ? Fact::of(std::exp2(*operand(0).number)) : Fact::same_as(value);
    case OpCode::add:
      return add(operand(0), operand(1));
    case OpCode::sub: {
      const Fact a = operand(0), b = operand(1);
      if (a.symbol && a == b) return Fact::of(0);
      if (b.symbol && a.number && std::isinf(*a.number)) return a;
      return b.is(0) ? a : add(a, negate(b));
    }
    case OpCode::mul:
      return multiply(f_, op->operands[0], operand(0), op->operands[1], operand(1));
    case OpCode::fma: {
      const Fact product = multiply(f_, op->operands[0], operand(0), op->operands[1], operand(1));
      const Op* c = f_.definition(op->operands[2]);
      if (c && c->code == OpCode::neg) {
        const Fact negated = evaluate(c->operands[0]);
        if (product.symbol && product == negated) return Fact::of(0);
        if (product.number && std::isinf(*product.number) && negated.known()) return product;
      }
      return add(product, operand(2));
    }
    case OpCode::max:
      return extremum(operand(0), operand(1), -INFINITY);
    case OpCode::min:
      return extremum(operand(0), operand(1), INFINITY);
    case OpCode::lt:
    case OpCode::le:
    case OpCode::gt:
    case OpCode::ge:
    case OpCode::eq:
      return !whole_tile && fails_beyond(f_, value, axis_) ? Fact::of(0) : Fact{};
    case OpCode::logical_and:
      return operand(0).is(0) || operand(1).is(0) ? Fact::of(0) : Fact{};
    case OpCode::where: {
      const Fact yes = operand(1), no = operand(2);
      if (operand(0).is(0)) return no;
      return yes == no ? yes : Fact{};
    }
    case OpCode::reduce_max:
    case OpCode::reduce_min:
    case OpCode::combine_partials:
      return operand(0).number ? operand(0) : Fact{};
    case OpCode::reduce_sum:
      return operand(0).is(0) ? Fact::of(0) : Fact{};
    case OpCode::dot: {
      if (!operand(0).is(0) && !operand(1).is(0)) return {};
      return op->operands.size() == 3 ? operand(2) : Fact::of(0);
    }
    default: {
      for (std::size_t i = 0; i < op->operands.size(); ++i)
        if (!operand(i).known()) return {};
      return type.has(axis_) ? Fact{} : Fact::same_as(value);
    }
  }
}

}  // namespace flashcore
