#include "codegen/passes/keep_operands.h"

#include <algorithm>

#include "codegen/instructions/instruction.h"
#include "codegen/layout/register_layouts.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {

using namespace ir;

std::vector<ValueId> left_operands_of_loop(const Function& f, const Op& loop) {
  std::vector<ValueId> found;
  for (OpId id : f[loop.body].ops) {
    if (f[id].code != OpCode::dot) continue;
    const ValueId left = f[id].operands[0];
    if (f[left].layout.space == Space::shared && !made_in(f, loop.body, left) &&
        std::ranges::count(found, left) == 0)
      found.push_back(left);
  }
  return found;
}

void keep_left_operand(Builder& b, const Op& loop, ValueId operand) {
  Function& f = b.function();
  const ValueId kept = b.make({.code = OpCode::convert, .operands = {operand}}, f[operand].type);
  f[kept].name = f[operand].name;
  f[kept].layout.space = Space::operand;
  for (OpId id : f[loop.body].ops) {
    Op& op = f[id];
    if (op.code != OpCode::dot || op.operands[0] != operand) continue;
    op.operands[0] = kept;
    f.definition(kept)->instruction = op.instruction;
    f[kept].layout.axes = {
        f[op.results[0]].layout.axes[0],
        spread(instruction_of(op).left_terms, f[f[operand].type.axes[1]].tile, 1, 1)};
  }
}

}  // namespace flashcore
