// Registers that nobody has written, and those of a product that has not completed: what is
// computed of them has to show.
#pragma once

#include "convert.h"
#include "language.h"
#include "types.cuh"

namespace fc {

// One of these two NaNs, or what arithmetic makes of them: quiet, or of the other sign. Unlike
// other NaNs they survive max and min.
FC_DEVICE bool is_unwritten(float x) { return (float_bits(x) & 0x7fbffe00u) == 0x7fa0fc00u; }

FC_DEVICE void forget(float& x) { x = bits_float(0x7fa0fd00u); }
template <class T, u32 n>
FC_DEVICE void forget(T (&x)[n]) {
  for (u32 i = 0; i < n; ++i) forget(x[i]);
}

}  // namespace fc
