// The product of a warpgroup: d[64, n] (+)= a[64, 16 steps] b[16 steps, n], fp32 accumulation. The
// machine keeps it pending until the wait that covers it; d holds NaNs meanwhile.
#pragma once

#include "language.h"
#include "mma_m16n8k16.h"
#include "types.cuh"

namespace fc {

// The descriptor of the hardware, which the machine decodes.
FC_DEVICE u64 matrix(u32 address, u32 width, u32 step) {
  const u64 swizzle = width == 64 ? 1 : width == 32 ? 2 : 3;
  return swizzle << 62 | static_cast<u64>(width * 16 >> 4) << 32 |
         static_cast<u64>(step >> 4) << 16 | (address & 0x3ffff) >> 4;
}

FC_DEVICE u64 advance(u64 matrix, u32 bytes) { return matrix + (bytes >> 4); }

template <u32 width, u32 panel>
struct along {
  static constexpr bool transposed = false;
  static constexpr u32 bytes(u32 step) { return step * 16 / width * panel + step * 16 % width * 2; }
};
template <u32 width>
struct across {
  static constexpr bool transposed = true;
  static constexpr u32 bytes(u32 step) { return step * 16 * width * 2; }
};

// The machine knows single instructions.
template <int n, class T, int steps, class A, class B>
FC_DEVICE void multiply_warpgroup(float (*d)[4], u64 a, u64 b, bool adds,
                                  int line = __builtin_LINE()) {
  for (int k = 0; k < steps; ++k)
    fc_machine->multiply_warpgroup(*d, n, nullptr, advance(a, A::bytes(k)), advance(b, B::bytes(k)),
                                   A::transposed, B::transposed, adds || k > 0, is_bf16(T{}), line);
}
template <int n, class T, int steps, class B>
FC_DEVICE void multiply_warpgroup(float (*d)[4], const u32 (*a)[4], u64 b, bool adds,
                                  int line = __builtin_LINE()) {
  for (int k = 0; k < steps; ++k)
    fc_machine->multiply_warpgroup(*d, n, a[k], 0, advance(b, B::bytes(k)), false, B::transposed,
                                   adds || k > 0, is_bf16(T{}), line);
}

FC_DEVICE void fence_products(int line = __builtin_LINE()) { fc_machine->fence_products(line); }
FC_DEVICE void commit_products(int line = __builtin_LINE()) { fc_machine->commit_products(line); }

template <int pending>
FC_DEVICE void wait_products(int line = __builtin_LINE()) {
  fc_machine->wait_products(pending, line);
}

template <int rows, int columns>
FC_DEVICE void pin(float (&d)[rows][columns][4], int line = __builtin_LINE()) {
  fc_machine->pin(&d[0][0][0], rows * columns * 4, line);
}

}  // namespace fc
