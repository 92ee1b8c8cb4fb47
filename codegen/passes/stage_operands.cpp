// A product reads its right operand from shared memory. One that is computed, such as a state that
// a loop carries, is written there in front of the product:
//
//   out = dot(query, cast(state))      becomes      shared = convert cast(state) in state_tile
//                                                   out = dot(query, shared)
//
// Where the instruction takes no computed operand, infer_layouts refuses the program.
#include "codegen/instructions/instruction.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

/// What a chain of transposes is of, and whether their number is odd.
struct Root {
  ValueId value;
  bool transposed = false;
};

Root root_of(const Function& f, ValueId value) {
  Root root{value};
  for (const Op* op = f.definition(value); op && op->code == OpCode::transpose;
       op = f.definition(root.value)) {
    root = {op->operands[0], !root.transposed};
  }
  return root;
}

bool is_computed(const Function& f, ValueId value) {
  const Op* op = f.definition(value);
  return !op || (op->code != OpCode::load && op->code != OpCode::convert);
}

}  // namespace

void stage_operands(Function& f, const PassContext&) {
  for (std::size_t block = 0; block < f.blocks.size(); ++block) {
    for (std::size_t i = 0; i < f.blocks[block].ops.size(); ++i) {
      const OpId id = f.blocks[block].ops[i];
      if (f[id].code != OpCode::dot ||
          instruction_of(f[id]).computed_right != ComputedOperand::shared)
        continue;
      const Root root = root_of(f, f[id].operands[1]);
      if (!is_computed(f, root.value)) continue;
      i += insert_before(f, BlockId(block), i, f[id].where, [&](Builder& b) {
        ValueId shared = move_to_shared(b, f, root.value, "operand", /*pitch=*/0);
        if (root.transposed) {
          shared = b.transpose(shared);
          f[shared].home.space = Space::shared;
        }
        f[id].operands[1] = shared;
      });
    }
  }
  remove_dead_ops(f);  // transposes of what products read now from there
}

}  // namespace flashcore
