#include "codegen/analysis/tile_guard.h"

namespace flashcore {

using namespace ir;

ValueId guard_of(const Function& f, const Op& op) {
  if (op.code != OpCode::where || f[op.results[0]].type.is_scalar()) return {};
  const ValueId condition = op.operands[0];
  if (f[condition].type.is_scalar()) return condition;
  const Op* either = f.definition(condition);
  if (!either || either->code != OpCode::logical_or) return {};
  const ValueId guard = either->operands[0];
  return f[guard].type.is_scalar() ? guard : ValueId{};
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

}  // namespace flashcore
