// The tensor-core product of a warp on f32 rounded to tf32: d[16, 8] += a[16, 8] b[8, 8], fp32
// accumulation.
#pragma once

#include "convert.h"
#include "language.h"
#include "types.cuh"

namespace fc {

FC_DEVICE void multiply_tf32(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1,
                             int line = __builtin_LINE()) {
  fc_machine->multiply_tf32(d, a, b0, b1, line);
}

// A NaN is 0x7fffffff, as the GPU gives it; an infinity stays one.
FC_DEVICE u32 round_tf32(float x) {
  if (x != x) return 0x7fffffffu;
  return (float_bits(x) + 0x1000u) & ~0x1fffu;
}
FC_DEVICE void round_tf32(u32 (&words)[4]) {
  for (u32& word : words) word = round_tf32(bits_float(word));
}
FC_DEVICE int odd_bits(int lane_part) { return __builtin_popcount(lane_part) & 1; }
FC_DEVICE void swap_if(bool swapped, u32& x, u32& y) {
  const u32 first = swapped ? y : x;
  y = swapped ? x : y;
  x = first;
}

FC_DEVICE void round_sums_tf32(u32 (&a)[4], const float (&sums)[4]) {
  for (int i = 0; i < 4; ++i) a[i] = round_tf32(sums[i % 2 * 2 + i / 2]);
}

}  // namespace fc
