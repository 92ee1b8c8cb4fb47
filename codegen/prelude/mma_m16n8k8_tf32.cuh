// The tensor-core product of a warp on f32 rounded to tf32 (sm_80): d[16, 8] += a[16, 8] b[8, 8],
// fp32 accumulation.
#pragma once

#include "types.cuh"

namespace fc {

// With g = lane / 4 and t = lane % 4, a lane holds
//   d: (g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1)
//   a: (g, t), (g+8, t), (g, t+4), (g+8, t+4)
//   b: (t, g), (t+4, g)
// The sum may go over its terms in any order that both operands share. In pairs, terms 2t and 2t+1
// stand in the place of t and t+4: then a fragment of d is one of a.
FC_DEVICE void multiply_tf32(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// To the nearest value of ten bits behind the first, halves away from zero. The product ignores the
// bits below, which would be to cut off.
FC_DEVICE u32 round_tf32(float x) {
  u32 rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(x));
  return rounded;
}
FC_DEVICE void round_tf32(u32 (&words)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) words[i] = round_tf32(__uint_as_float(words[i]));
}

// Lanes that read their two terms the other way round, and what they make of them.
FC_DEVICE int odd_bits(int lane_part) { return __popc(lane_part) & 1; }
FC_DEVICE void swap_if(bool swapped, u32& x, u32& y) {
  const u32 first = swapped ? y : x;
  y = swapped ? x : y;
  x = first;
}

// A fragment of sums as a left operand, in pairs.
FC_DEVICE void round_sums_tf32(u32 (&a)[4], const float (&sums)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) a[i] = round_tf32(sums[i % 2 * 2 + i / 2]);
}

}  // namespace fc
