// Elements of tiles in shared memory that threads compute with, of fewer than 32 bits.
#pragma once

#include "convert.cuh"
#include "memory.cuh"
#include "types.cuh"

namespace fc {

// n neighbouring 16-bit elements, n even, at a multiple of 4 bytes.
template <class T, int n>
FC_DEVICE void load_shared_halves(float* out, u32 address) {
#pragma unroll
  for (int i = 0; i < n; i += 2) {
    const u32 pair = load_shared_word(address + 2 * i);
    out[i] = to_float(T{static_cast<u16>(pair)});
    out[i + 1] = to_float(T{static_cast<u16>(pair >> 16)});
  }
}

// Two neighbouring conditions, a byte each that is 0 or 1, at a multiple of 2 bytes: as bits 0 and 1.
FC_DEVICE u32 load_shared_conditions(u32 address) {
  u16 pair;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(pair) : "r"(address) : "memory");
  return pair | static_cast<u32>(pair) >> 7;
}

}  // namespace fc
