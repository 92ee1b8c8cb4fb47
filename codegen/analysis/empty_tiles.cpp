#include "codegen/analysis/empty_tiles.h"

#include "codegen/passes/rewrite.h"

namespace flashcore {

using namespace ir;

namespace {

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
  const Op& yield = last_of(f, loop.body);
  for (std::size_t i = 0; i < yield.operands.size(); ++i) {
    const ValueId carried = f[loop.body].arguments[i + 1];
    if (!(analysis.evaluate(yield.operands[i]) == Fact::same_as(carried))) return false;
  }
  return !yield.operands.empty() || !added.empty();
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
