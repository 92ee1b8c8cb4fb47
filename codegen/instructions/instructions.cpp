#include "codegen/instructions/instruction.h"
#include "dsl/error.h"

namespace flashcore {

const TensorInstruction& describe(Instruction name) {
  for (const TensorInstruction* one : {&mma_m16n8k16, &mma_m16n8k8_tf32, &wmma, &wgmma})
    if (one->name == name) return *one;
  throw InternalError("an instruction without a description");
}

const TensorInstruction& instruction_of(const ir::Op& op) {
  if (!op.instruction) throw InternalError("a product that no pass has given an instruction");
  return describe(*op.instruction);
}

}  // namespace flashcore
