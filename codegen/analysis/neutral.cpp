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

/// The condition holds nowhere, and so does what it says besides "inside the axis".
void assume_nowhere(const Function& f, AxisId axis, ValueId condition, NeutralAnalysis& analysis) {
  analysis.assume(condition, Fact::of(0));
  const Op* both = f.definition(condition);
  if (both && both->code == OpCode::logical_or)
    for (ValueId either : both->operands) assume_nowhere(f, axis, either, analysis);
  if (!both || both->code != OpCode::logical_and) return;
  const auto is_tail = [&](ValueId value) {
    const Op* lt = f.definition(value);
    const Op* end = lt && lt->code == OpCode::lt ? f.definition(lt->operands[1]) : nullptr;
    return end && end->code == OpCode::extent && end->axis == axis;
  };
  if (is_tail(both->operands[1])) assume_nowhere(f, axis, both->operands[0], analysis);
  if (is_tail(both->operands[0])) assume_nowhere(f, axis, both->operands[1], analysis);
}

}  // namespace

Fact NeutralAnalysis::evaluate(ValueId value) {
  return remembered(facts_, value, [&] { return derive(value); });
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
    case OpCode::tanh:
      return operand(0).number ? Fact::of(std::tanh(*operand(0).number)) : Fact{};
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

bool may_skip(const Function& f, const Op& loop, const Op& mask) {
  const double* neutral = constant_of(f, mask.operands[2]);
  bool stores = false;
  std::vector<ValueId> added;
  for_each_op(f, loop.body, [&](const Op& op, BlockId block) {
    const bool probe = op.code == OpCode::store && f[op.tensor].unwritten;
    const bool adds = op.accumulation != Accumulation::none && block == loop.body;
    if (adds) added.push_back(op.operands[0]);
    stores = stores || (op.code == OpCode::store && !probe && !adds) || op.code == OpCode::loop;
  });
  if (!neutral || stores) return false;
  NeutralAnalysis analysis(f, loop.axis, NeutralAnalysis::Positions::whole_tile);
  analysis.assume(mask.results[0], Fact::of(*neutral));
  for (const ValueId value : added)
    if (analysis.evaluate(value).number != 0.) return false;
  const std::vector<Carried> carried = carried_by(f, loop);
  const auto stays = [&](const Carried& each) {
    return analysis.evaluate(each.next) == Fact::same_as(each.argument);
  };
  return std::ranges::all_of(carried, stays) && (!carried.empty() || !added.empty());
}

std::optional<double> value_if_skipped(const Function& f, const Op& loop, ValueId value) {
  std::optional<double> agreed;
  for (OpId id : f[loop.body].ops) {
    const Op& mask = f[id];
    if (mask.code != OpCode::where || !f[mask.results[0]].type.has(loop.axis)) continue;
    if (!may_skip(f, loop, mask)) continue;
    NeutralAnalysis analysis(f, loop.axis, NeutralAnalysis::Positions::whole_tile);
    analysis.assume(mask.results[0], Fact::of(*constant_of(f, mask.operands[2])));
    assume_nowhere(f, loop.axis, mask.operands[0], analysis);
    const std::optional<double> number = analysis.evaluate(value).number;
    if (!number || (agreed && *agreed != *number)) return std::nullopt;
    agreed = number;
  }
  return agreed;
}

}  // namespace flashcore
