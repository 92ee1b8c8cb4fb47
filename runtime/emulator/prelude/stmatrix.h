// Four 8x8 matrices of 16-bit elements from the registers of a warp into shared memory.
#pragma once

#include "convert.h"
#include "language.h"

namespace fc {

FC_DEVICE void store_matrices(u32 address, const u32 (&fragment)[4], int line = __builtin_LINE()) {
  fc_machine->store_matrices(address, fragment, line);
}

template <class T>
FC_DEVICE void store_matrices(u32 address, const float (&left)[4], const float (&right)[4],
                              int line = __builtin_LINE()) {
  const u32 fragment[4] = {pack<T>(left[0], left[1]), pack<T>(left[2], left[3]),
                           pack<T>(right[0], right[1]), pack<T>(right[2], right[3])};
  store_matrices(address, fragment, line);
}

}  // namespace fc
