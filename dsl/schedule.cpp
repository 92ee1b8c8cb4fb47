#include "dsl/schedule.h"

namespace flashcore {

std::string_view name_of(Instruction instruction) {
  switch (instruction) {
    case Instruction::mma_m16n8k16: return "mma_m16n8k16";
  }
  return "?";
}

std::string_view name_of(CopyInstruction copy) {
  switch (copy) {
    case CopyInstruction::cp_async: return "cp_async";
  }
  return "?";
}

std::string_view name_of(GridOrder order) {
  switch (order) {
    case GridOrder::tiles_first: return "tiles_first";
    case GridOrder::tiles_last: return "tiles_last";
  }
  return "?";
}

}  // namespace flashcore
