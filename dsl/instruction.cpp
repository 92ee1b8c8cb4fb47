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
  }
  return "?";
}

}  // namespace flashcore
