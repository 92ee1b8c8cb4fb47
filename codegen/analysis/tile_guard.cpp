#include "codegen/analysis/tile_guard.h"

#include <algorithm>
#include <set>

#include "codegen/passes/rewrite.h"

namespace flashcore {

using namespace ir;

namespace {

/// What all elements of a `where` have in common of its condition.
ValueId shared_condition(const Function& f, const Op& op) {
  if (op.code != OpCode::where || f[op.results[0]].type.is_scalar()) return {};
  const ValueId condition = op.operands[0];
  if (f[condition].type.is_scalar()) return condition;
  const Op* either = f.definition(condition);
  if (!either || either->code != OpCode::logical_or) return {};
  const ValueId guard = either->operands[0];
  return f[guard].type.is_scalar() ? guard : ValueId{};
}

}  // namespace

ValueId guard_of(const Function& f, const Op& op) {
  return shared_condition(f, op) ? TileGuards(f).of(op) : ValueId{};
}

ValueId condition_behind_guard(const Function& f, const Op& op) {
  const ValueId condition = op.operands[0];
  return f[condition].type.is_scalar() ? ValueId{} : f.definition(condition)->operands[1];
}

std::optional<GuardedRange> guarded_range(const Function& f, ValueId guard, ValueId tile) {
  const Op* op = f.definition(guard);
  if (!op) return std::nullopt;
  if (op->code == OpCode::logical_and) {
    const auto low = guarded_range(f, op->operands[0], tile);
    const auto high = guarded_range(f, op->operands[1], tile);
    if (!low || !high || low->end || high->begin) return std::nullopt;
    return GuardedRange{low->begin, high->end};
  }
  if (op->operands.size() != 2 || op->operands[0] != tile) return std::nullopt;
  if (op->code == OpCode::ge) return GuardedRange{op->operands[1], {}};
  if (op->code == OpCode::lt) return GuardedRange{{}, op->operands[1]};
  return std::nullopt;
}

TileGuards::TileGuards(const Function& f) : f_(f) {
  // All ops of the function, and not those of its body alone: a pass that splits the body into roles
  // asks for guards while the ops stand in none of them.
  for (const Op& op : f.ops) {
    if (op.code == OpCode::enter) tiles_.push_back(op.operands[0]);
    if (op.code == OpCode::loop) tiles_.push_back(f[op.body].arguments[0]);
  }
}

std::optional<GuardedRange> TileGuards::range(ValueId guard) const {
  for (ValueId tile : tiles_)
    if (const auto found = guarded_range(f_, guard, tile)) return found;
  return std::nullopt;
}

ValueId TileGuards::of(const Op& mask) const {
  const ValueId guard = shared_condition(f_, mask);
  if (!guard) return {};
  const Op* op = f_.definition(guard);
  return (op && op->code == OpCode::tile_is_full) || range(guard) ? guard : ValueId{};
}

ValueId TileGuards::build_opposite(Builder& b, ValueId guard) const {
  const Op op = *f_.definition(guard);
  switch (op.code) {
    case OpCode::lt:
      return b.elementwise(OpCode::ge, op.operands);
    case OpCode::ge:
      return b.elementwise(OpCode::lt, op.operands);
    case OpCode::logical_and: {
      const ValueId low = build_opposite(b, op.operands[0]);
      return b.elementwise(OpCode::logical_or, {low, build_opposite(b, op.operands[1])});
    }
    default: {
      // Asked again, perhaps further in front.
      Op asked{.code = op.code, .operands = op.operands, .buffer = op.buffer};
      const ValueId full = b.make(std::move(asked), {DType::i1, {}});
      return b.elementwise(OpCode::logical_not, {full});
    }
  }
}

std::vector<OpId> ops_of_mask(const Function& f, BlockId block, OpId mask) {
  const auto& ops = f[block].ops;
  const ValueId hidden = f[mask].operands[1];
  std::set<OpId> own{mask};
  std::vector<OpId> found;
  for (std::size_t i = position_of(f, block, mask); i-- > 0;) {
    const Op& op = f[ops[i]];
    const bool computes =
        kind_of(op.code) == OpKind::elementwise || kind_of(op.code) == OpKind::reduction;
    if (!computes || f[op.results[0]].layout.space != Space::registers || op.results[0] == hidden)
      continue;
    const std::vector<OpId> readers = readers_of(f, block, op.results[0]);
    if (readers.empty() ||
        !std::ranges::all_of(readers, [&](OpId reader) { return own.count(reader) > 0; }))
      continue;
    own.insert(ops[i]);
    found.insert(found.begin(), ops[i]);
  }
  return found;
}

}  // namespace flashcore
