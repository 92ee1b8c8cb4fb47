// The emulator's side of prelude/machine.h.
#pragma once

#include "runtime/emulator/prelude/machine.h"

namespace flashcore {

/// Every function acts on the block that runs on the calling OS thread.
const FlashcoreMachine& emulated_machine();

}  // namespace flashcore
