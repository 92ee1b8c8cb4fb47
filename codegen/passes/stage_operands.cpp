// A computed operand of a product, such as a state that a loop carries, is written to shared memory
// in front of the product, unless it stays in registers (analysis/warp_partition.h):
//
//   out = dot(query, cast(state))      becomes      shared = convert cast(state) in state_tile
//                                                   out = dot(query, shared)
//
// A tile that several products read is written once, in the block that computes it. Several tiles
// that are computed in front of one product are written together, so that one barrier stands
// between all of them and the products.
//
// If the instruction takes no operand that threads have written, infer_layouts refuses the program.
#include <map>

#include "codegen/analysis/warp_partition.h"
#include "codegen/instructions/instruction.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

/// Behind what makes a value: an op, or the start of the region that has it as an argument.
Builder behind_value(Function& f, ValueId value) {
  const BlockId block = block_of(f, value);
  return f.definition(value) ? behind(f, block, f[value].definition) : Builder(f, block, 0);
}

/// Puts what a product reads instead of a value: the value in shared memory, or a cast of its own.
ValueId put_operand(Function& f, ValueId value, OpId product, bool shared) {
  Builder b = behind_value(f, value);
  if (!shared)
    return named(f, b.cast(f.definition(value)->operands[0], f[value].type.dtype), f[value].name);
  const int pitch = instruction_of(f[product]).pitch(f[f[value].type.axes[1]].tile);
  return move_to_shared(b, value, "operand", pitch);
}

struct OperandUse {
  OpId dot;
  std::size_t operand;
  bool shared;  ///< goes through shared memory; else it is a cast that others read too
};

std::vector<OperandUse> uses_to_stage(const Function& f, const Schedule& schedule) {
  // Late products leave no registers for the elements in f32 as well. Warps write packed ones as matrices of
  // whole rows, by an instruction of the targets that have a copy engine for tensors.
  const auto stays_as_operand = [&](ValueId value) {
    return schedule.late_products && schedule.warps_n == 1
               ? stays_packed(f, value, schedule.copy == CopyInstruction::tma)
               : is_only_left_operand(f, value);
  };
  std::vector<OperandUse> uses;
  for_each_op(f, f.body, [&](const Op& op, BlockId) {
    if (op.code != OpCode::dot) return;
    for (std::size_t k : {0, 1}) {
      const bool shared = goes_through_shared(f, op, k, schedule);
      if (shared || (k == 0 && definition_as(f, op.operands[0], OpCode::cast) &&
                     !stays_as_operand(op.operands[0])))
        uses.push_back({f[op.results[0]].definition, k, shared});
    }
  });
  return uses;
}

}  // namespace

void stage_operands(Function& f, const PassContext& context) {
  std::map<std::pair<ValueId, bool>, ValueId> staged;
  for (const OperandUse& use : uses_to_stage(f, context.schedule)) {
    const OperandRoot root = operand_root(f, f[use.dot].operands[use.operand]);
    ValueId& known = staged[{root.value, use.shared}];
    if (!known) known = put_operand(f, root.value, use.dot, use.shared);
    const BlockId block = block_of(f, f[use.dot].results[0]);
    f[use.dot].operands[use.operand] =
        root.transposed ? before(f, block, use.dot).transpose(known) : known;
  }
  remove_dead_ops(f);  // transposes of what products read now from there
}

}  // namespace flashcore
