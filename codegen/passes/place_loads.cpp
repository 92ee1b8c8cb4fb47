#include "codegen/passes/place_loads.h"

#include "codegen/passes/rewrite.h"

namespace flashcore {

using namespace ir;

namespace {

/// Whether a product or a conversion takes a value as an operand.
bool takes_operand(const Op& op, std::size_t k) {
  return (op.code == OpCode::dot && k < 2) || op.code == OpCode::convert;
}

/// Who reads a value, seen through transposes.
struct Uses {
  bool any = false;  ///< some product or conversion reads it
  bool only = true;  ///< nothing else does
};

Uses uses_of(const Function& f, ValueId value) {
  Uses uses;
  for_each_op(f, f.body, [&](const Op& op, BlockId) {
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      if (op.operands[i] != value) continue;
      Uses more{.any = takes_operand(op, i), .only = takes_operand(op, i)};
      if (op.code == OpCode::transpose) more = uses_of(f, op.results[0]);
      uses = {uses.any || more.any, uses.only && more.only};
    }
  });
  return uses;
}

void split_mixed_load(Builder& b, OpId id) {
  Function& f = b.function();
  const Op op = f[id];
  if (op.code != OpCode::load) return;
  const Uses uses = uses_of(f, op.results[0]);
  if (!uses.any || uses.only) return;
  const ValueId copy = b.load(op.tensor, op.coordinates);
  f[copy].name = f[op.results[0]].name;
  for_each_op(f, f.body, [&](Op& user, BlockId) {
    if (user.code == OpCode::transpose) return;
    for (std::size_t k = 0; k < user.operands.size(); ++k)
      if (user.operands[k] == op.results[0] && !takes_operand(user, k)) user.operands[k] = copy;
  });
}

/// What reads positions or constants alone, and has no layout to give them.
void copy_bare_source(Builder& b, OpId id) {
  Function& f = b.function();
  if (kind_of(f[id].code) != OpKind::reduction && f[id].code != OpCode::store) return;
  const ValueId source = f[id].operands[0];
  if (is_source(f, source) && !f[source].type.is_scalar())
    f[id].operands[0] = b.max(source, source);
}

}  // namespace

void place_loads(Function& f) {
  rewrite_all_blocks(f, copy_bare_source);
  rewrite_all_blocks(f, split_mixed_load);
  for_each_op(f, f.body, [&](const Op& op, BlockId) {
    if (op.code == OpCode::load) {
      const Uses uses = uses_of(f, op.results[0]);
      if (uses.any && uses.only) f[op.results[0]].layout.space = Space::shared;
    } else if (op.code == OpCode::transpose) {
      f[op.results[0]].layout.space = f[op.operands[0]].layout.space;
    }
  });
}

}  // namespace flashcore
