#include "codegen/analysis/warp_partition.h"

#include <algorithm>

#include "codegen/analysis/visit.h"
#include "codegen/instructions/instruction.h"

namespace flashcore {

using namespace ir;

namespace {

bool is_computed(const Function& f, ValueId value) {
  const Op* op = f.definition(value);
  return !op || (op->code != OpCode::load && op->code != OpCode::convert);
}

/// Whether every product that reads a value stands in the block that makes it.
bool is_read_where_made(const Function& f, ValueId value) {
  const BlockId defining_block = block_of(f, value);
  bool here = true;
  for_each_op(f, f.body, [&](const Op& op, BlockId block) {
    if (op.code == OpCode::dot && op.operands[0] == value) here = here && block == defining_block;
  });
  return here;
}

}  // namespace

OperandRoot operand_root(const Function& f, ValueId operand) {
  OperandRoot root{operand};
  for (const Op* op = f.definition(operand); op && op->code == OpCode::transpose;
       op = f.definition(root.value)) {
    root = {op->operands[0], !root.transposed};
  }
  return root;
}

BlockId block_of(const Function& f, ValueId value) {
  for (std::size_t b = 0; b < f.blocks.size(); ++b) {
    if (std::ranges::count(f.blocks[b].arguments, value) || made_in(f, BlockId(b), value))
      return BlockId(b);
  }
  return {};
}

bool goes_through_shared(const Function& f, const Op& dot, std::size_t k,
                         const Schedule& schedule) {
  const OperandRoot root = operand_root(f, dot.operands[k]);
  const TensorInstruction& instruction = describe(dot.instruction.value_or(schedule.instruction));
  if (!is_computed(f, root.value)) return false;
  const bool divides_columns =
      schedule.warps_n > 1 && schedule.product_split == ProductSplit::columns;
  if (k == 0 && (divides_columns || (root.transposed && instruction.turns_computed_left)))
    return true;
  // Some instructions read in shared memory only what the copy engine has brought there.
  if (instruction.computed_right != ComputedOperand::shared) return false;
  if (k == 1 || root.transposed) return true;
  const Op* made_by = f.definition(root.value);
  // What is packed in pairs is a cast.
  if (!instruction.takes_sums && (!made_by || made_by->code != OpCode::cast)) return true;
  return !schedule.keep_operands && !is_read_where_made(f, root.value);
}

bool cuts_sum(const Function& f, const Op& dot, const Schedule& schedule) {
  if (schedule.warps_n == 1 || schedule.softmax != Softmax::registers) return false;
  return is_computed(f, operand_root(f, dot.operands[0]).value) &&
         !goes_through_shared(f, dot, 0, schedule);
}

}  // namespace flashcore
