#include "codegen/passes/place_loads.h"

#include "codegen/passes/rewrite.h"

namespace flashcore {

using namespace ir;

namespace {

/// Who reads a value, seen through transposes.
struct Uses {
  bool any = false;  ///< some product or conversion reads it
  bool only = true;  ///< nothing else does
};

void collect_uses(const Function& f, ValueId value, Uses& uses) {
  for_each_op(f, f.body, [&](const Op& op, BlockId) {
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      if (op.operands[i] != value) continue;
      if (op.code == OpCode::transpose)
        collect_uses(f, op.results[0], uses);
      else if ((op.code == OpCode::dot && i < 2) || op.code == OpCode::convert)
        uses.any = true;
      else
        uses.only = false;
    }
  });
}

Uses uses_of(const Function& f, ValueId value) {
  Uses uses;
  collect_uses(f, value, uses);
  return uses;
}

/// Calls `act(block, position)` for every op, and goes on behind what that has put in front of it.
template <class Act>
void at_every_op(Function& f, const Act& act) {
  for (std::size_t b = 0; b < f.blocks.size(); ++b)
    for (std::size_t i = 0; i < f.blocks[b].ops.size(); ++i) i += act(BlockId(b), i);
}

std::size_t split_mixed_load(Function& f, BlockId block, std::size_t position) {
  const Op op = f[f[block].ops[position]];
  if (op.code != OpCode::load) return 0;
  const Uses uses = uses_of(f, op.results[0]);
  if (!uses.any || uses.only) return 0;
  ValueId copy;
  const std::size_t placed = insert_before(
      f, block, position, op.where, [&](Builder& b) { copy = b.load(op.tensor, op.coordinates); });
  f[copy].name = f[op.results[0]].name;
  for_each_op(f, f.body, [&](Op& user, BlockId) {
    if (user.code == OpCode::transpose) return;
    if (user.code == OpCode::convert) return;
    for (std::size_t k = user.code == OpCode::dot ? 2 : 0; k < user.operands.size(); ++k)
      if (user.operands[k] == op.results[0]) user.operands[k] = copy;
  });
  return placed;
}

}  // namespace

void place_loads(Function& f) {
  at_every_op(f, [&](BlockId block, std::size_t i) { return split_mixed_load(f, block, i); });
  for_each_op(f, f.body, [&](const Op& op, BlockId) {
    if (op.code == OpCode::load) {
      const Uses uses = uses_of(f, op.results[0]);
      if (uses.any && uses.only) f[op.results[0]].layout.space = Space::shared;
    } else if (op.code == OpCode::transpose) {
      f[op.results[0]].layout.space = f[op.operands[0]].layout.space;
    }
  });
}

void copy_bare_sources(Function& f) {
  at_every_op(f, [&](BlockId block, std::size_t i) -> std::size_t {
    const OpId id = f[block].ops[i];
    if (kind_of(f[id].code) != OpKind::reduction && f[id].code != OpCode::store) return 0;
    const ValueId source = f[id].operands[0];
    const Op* made_by = f.definition(source);
    if (!made_by || kind_of(made_by->code) != OpKind::source || f[source].type.is_scalar())
      return 0;
    return insert_before(f, block, i, f[id].where, [&](Builder& b) {
      const ValueId copy = b.elementwise(OpCode::max, {source, source});
      f[id].operands[0] = copy;
    });
  });
}

}  // namespace flashcore
