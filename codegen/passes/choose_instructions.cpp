// Says for every product which tensor-core instruction makes it: the one that the schedule names.
// From here on nothing asks the schedule for it, and each product may have another.
#include <fmt/format.h>

#include "codegen/instructions/instruction.h"
#include "codegen/passes/passes.h"
#include "dsl/error.h"

namespace flashcore {

using namespace ir;

void choose_instructions(Function& f, const PassContext& context) {
  const TensorInstruction& instruction = describe(context.schedule.instruction);
  for_each_op(f, f.body, [&](Op& op, BlockId) {
    if (op.code != OpCode::dot) return;
    const DType operands = f[op.operands[0]].type.dtype;
    if (!instruction.takes(operands))
      throw ScheduleError({fmt::format("a product of two tiles of {}", name_of(operands)),
                           fmt::format("{} does not take them", name_of(instruction.name)),
                           operands == DType::f32
                               ? "instruction = mma_m16n8k8_tf32 with copy = cp_async"
                               : "instruction = mma_m16n8k16",
                           op.where});
    op.instruction = instruction.name;
  });
}

}  // namespace flashcore
