// Kernels that start beside the end of the one launched before them. The machine runs one after the
// other, and checks that every thread waits before it touches a tensor.
#pragma once

#include "language.h"
#include "types.cuh"

namespace fc {

FC_DEVICE void wait_for_kernels() { fc_machine->wait_for_kernels(); }
FC_DEVICE void launch_dependents(int line = __builtin_LINE()) {
  fc_machine->launch_dependents(line);
}

}  // namespace fc
