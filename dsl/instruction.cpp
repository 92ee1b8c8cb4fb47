#include "dsl/instruction.h"

namespace flashcore {

std::string_view name_of(Instruction instruction) {
  switch (instruction) {
    case Instruction::mma_m16n8k16:
      return "mma_m16n8k16";
    case Instruction::wmma:
      return "wmma";
    case Instruction::wgmma:
      return "wgmma";
    case Instruction::mma_m16n8k8_tf32:
      return "mma_m16n8k8_tf32";
  }
  return "?";
}

std::string_view name_of(OperandRounding rounding) {
  switch (rounding) {
    case OperandRounding::none:
      return "none";
    case OperandRounding::tf32:
      return "tf32";
  }
  return "?";
}

}  // namespace flashcore
