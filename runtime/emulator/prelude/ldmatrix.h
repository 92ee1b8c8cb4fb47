// Four 8x8 matrices of 16-bit elements from shared memory into the registers of a warp.
#pragma once

#include "language.h"
#include "types.cuh"

namespace fc {

FC_DEVICE void load_matrices(u32 (&fragment)[4], u32 address, int line = __builtin_LINE()) {
  fc_machine->load_matrices(fragment, address, 0, line);
}
FC_DEVICE void load_matrices_transposed(u32 (&fragment)[4], u32 address,
                                        int line = __builtin_LINE()) {
  fc_machine->load_matrices(fragment, address, 1, line);
}

}  // namespace fc
