// The tensor-core product of a warp (sm_80): d[16, 8] += a[16, 16] b[16, 8], fp32 accumulation.
#pragma once

#include "types.cuh"

namespace fc {

// With g = lane / 4 and c = 2(lane % 4), a lane holds
//   d: (g, c), (g, c+1), (g+8, c), (g+8, c+1)
//   a: (g, c..c+1), (g+8, c..c+1), (g, c+8..c+9), (g+8, c+8..c+9)
//   b: (c..c+1, g), (c+8..c+9, g)
// so two neighbouring d fragments, packed, are one a fragment.
template <class T>
FC_DEVICE void multiply(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1);

#define FC_MULTIPLY(T)                                                             \
  template <>                                                                      \
  FC_DEVICE void multiply<T>(float(&d)[4], const u32(&a)[4], u32 b0, u32 b1) {     \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." #T "." #T                \
                 ".f32 "                                                           \
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                  \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));  \
  }
FC_MULTIPLY(bf16)
FC_MULTIPLY(f16)

}  // namespace fc
