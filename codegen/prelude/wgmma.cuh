// The tensor-core product of a warpgroup (sm_90a): d[64, n] (+)= a[64, 16 steps] b[16 steps, n],
// fp32 accumulation, asynchronous. b lies in shared memory, a in shared memory or in registers.
// Warp w of the four holds rows 16 w to 16 w + 15 of d and a, each lane as for mma.sync
// (mma_m16n8k16.cuh): fragment i of d is columns 8 i to 8 i + 7.
#pragma once

#include "types.cuh"

namespace fc {

// A matrix in shared memory, as the tensor core is told of it. `address` is that of its first
// element, in a panel of shared_tile.cuh of `width` columns (64, 32 or 16; lines of 128, 64 or 32
// bytes). `step` is for one whose rows lie across the sum: the bytes from panel to panel.
FC_DEVICE u64 matrix(u32 address, u32 width, u32 step) {
  const u64 swizzle = width == 64 ? 1 : width == 32 ? 2 : 3;
  return swizzle << 62 | static_cast<u64>(width * 16 >> 4) << 32 |
         static_cast<u64>(step >> 4) << 16 | (address & 0x3ffff) >> 4;
}

// The matrix `bytes` further on.
FC_DEVICE u64 advance(u64 matrix, u32 bytes) { return matrix + (bytes >> 4); }

// How a matrix goes on along the sum, 16 elements a step.
// K-major: the panel's rows are rows of a or columns of b, and run along the sum; the next panel
// lies `panel` bytes further.
template <u32 width, u32 panel>
struct along {
  static constexpr u32 bytes(u32 step) { return step * 16 / width * panel + step * 16 % width * 2; }
};
// MN-major: they run across it.
template <u32 width>
struct across {
  static constexpr u32 bytes(u32 step) { return step * 16 * width * 2; }
};

// All steps of a product, as one statement: the compiler takes half as long as with one for each.
// d fragments [n / 8][4]; where `adds` is false, d is not read. A and B are how a and b go on.
// Specialised for the shapes that a kernel uses.
template <int n, class T, int steps, class A, class B>
FC_DEVICE void multiply_warpgroup(float (*d)[4], u64 a, u64 b, bool adds);
template <int n, class T, int steps, class B>
FC_DEVICE void multiply_warpgroup(float (*d)[4], const u32 (*a)[4], u64 b, bool adds);

// By the warpgroup, before products read registers or accumulators that it has written.
FC_DEVICE void fence_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// Closes a group of the products issued since the last one.
FC_DEVICE void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until at most `pending` of the newest groups are unfinished.
template <int pending>
FC_DEVICE void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

// Keeps the compiler from moving accesses to a tile over this point.
template <int rows, int columns>
FC_DEVICE void pin(float (&d)[rows][columns][4]) {
#pragma unroll
  for (int r = 0; r < rows; ++r)
#pragma unroll
    for (int c = 0; c < columns; ++c)
      asm volatile(""
                   : "+f"(d[r][c][0]), "+f"(d[r][c][1]), "+f"(d[r][c][2]),
                     "+f"(d[r][c][3])::"memory");
}

}  // namespace fc
