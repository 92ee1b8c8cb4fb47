// Elements of tiles in shared memory that threads compute with, of fewer than 32 bits.
#pragma once

#include "convert.h"
#include "memory.h"
#include "types.cuh"

namespace fc {

// n neighbouring 16-bit elements, n even, at a multiple of 4 bytes.
template <class T, int n>
FC_DEVICE void load_shared_halves(float* out, u32 address, int line = __builtin_LINE()) {
  for (int i = 0; i < n; i += 2) {
    const u32 pair = load_shared_word(address + 2 * i, line);
    out[i] = to_float(T{static_cast<u16>(pair)});
    out[i + 1] = to_float(T{static_cast<u16>(pair >> 16)});
  }
}

// The machine's words are of four bytes.
FC_DEVICE u32 load_shared_conditions(u32 address, int line = __builtin_LINE()) {
  const u32 pair = load_shared_word(address & ~3u, line) >> 8 * (address & 2u) & 0xffffu;
  return pair | pair >> 7;
}

}  // namespace fc
