// The instructions that shipped schedules use on a target.
#pragma once

#include "dsl/flashcore.h"

namespace flashcore {

/// mma.sync with asynchronous copies where the target has them; otherwise wmma, with the operations
/// between products on rows in shared memory, and copies by loads and stores.
inline void choose_family(Schedule& schedule, const Target& target) {
  if (!target.mma_m16n8k16) {
    schedule.instruction = Instruction::wmma;
    schedule.softmax = Softmax::shared;
  }
  if (!target.async_copy) schedule.copy = CopyInstruction::vector;
}

}  // namespace flashcore
