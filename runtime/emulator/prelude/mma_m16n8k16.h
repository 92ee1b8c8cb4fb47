// The tensor-core product of a warp: d[16, 8] += a[16, 16] b[16, 8], fp32 accumulation.
#pragma once

#include "language.h"
#include "types.cuh"

namespace fc {

FC_DEVICE constexpr int is_bf16(f16) { return 0; }
FC_DEVICE constexpr int is_bf16(bf16) { return 1; }

template <class T>
FC_DEVICE void multiply(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1,
                        int line = __builtin_LINE()) {
  fc_machine->multiply(d, a, b0, b1, is_bf16(T{}), line);
}

}  // namespace fc
