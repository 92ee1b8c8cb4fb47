#include "codegen/instructions/instruction.h"
#include "dsl/error.h"

namespace flashcore {

const TensorInstruction& describe(Instruction name) {
  switch (name) {
    case Instruction::mma_m16n8k16:
      return mma_m16n8k16();
    case Instruction::mma_m16n8k8_tf32:
      return mma_m16n8k8_tf32();
    case Instruction::wmma:
      return wmma();
    case Instruction::wgmma:
      return wgmma();
  }
  throw InternalError("an instruction without a description");
}

const TensorInstruction& instruction_of(const ir::Op& op) {
  if (!op.instruction) throw InternalError("a product that no pass has given an instruction");
  return describe(*op.instruction);
}

}  // namespace flashcore
