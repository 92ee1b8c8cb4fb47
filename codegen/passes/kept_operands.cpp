#include "codegen/passes/kept_operands.h"

#include <map>

#include "codegen/instructions/instruction.h"
#include "codegen/layout/register_layouts.h"

namespace flashcore {

using namespace ir;

bool keep_left_operands(Builder& b, const Op& loop, const std::function<void()>& wait) {
  Function& f = b.function();
  std::map<ValueId, ValueId> kept;
  for (OpId id : f[loop.body].ops) {
    const ValueId left = f[id].code == OpCode::dot ? f[id].operands[0] : ValueId{};
    if (!left || f[left].layout.space != Space::shared || made_in(f, loop.body, left) ||
        definition_as(f, left, OpCode::transpose))
      continue;
    if (kept.empty() && wait) wait();
    ValueId& operand = kept[left];
    if (!operand) {
      operand = b.make({.code = OpCode::convert, .operands = {left}}, f[left].type);
      f[operand].name = f[left].name;
      f[operand].layout.space = Space::operand;
    }
    Op& dot = f[id];
    dot.operands[0] = operand;
    f.definition(operand)->instruction = dot.instruction;
    f[operand].layout.axes = {
        f[dot.results[0]].layout.axes[0],
        spread(instruction_of(dot).left_terms, f[f[left].type.axes[1]].tile, 1, 1)};
  }
  return !kept.empty();
}

}  // namespace flashcore
