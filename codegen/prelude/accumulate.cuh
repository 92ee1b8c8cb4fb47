// Additions to what other blocks add to as well, atomically or one block after the other.
#pragma once

#include "types.cuh"

namespace fc {

// Adds n neighbouring elements, aligned to their size together; n is 1, 2 or 4.
template <int n>
FC_DEVICE void add_global(float* target, const float* in) {
#if __CUDA_ARCH__ >= 900
  if constexpr (n == 2) {
    asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};" ::"l"(target), "f"(in[0]),
                 "f"(in[1])
                 : "memory");
    return;
  }
  if constexpr (n == 4) {
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(target),
                 "f"(in[0]), "f"(in[1]), "f"(in[2]), "f"(in[3])
                 : "memory");
    return;
  }
#endif
#pragma unroll
  for (int i = 0; i < n; ++i)
    asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(target + i), "f"(in[i])
                 : "memory");
}
// The same for a block at its turn.
template <int n>
FC_DEVICE void add_in_turn(float* target, const float* in) {
  add_global<n>(target, in);
}

// Returns once the note at `turn` has come to `position`; what its block has added in front of that
// is there.
FC_DEVICE void wait_turn(const int* turn, int position) {
  int noted;
  do {
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(noted) : "l"(turn) : "memory");
  } while (noted < position);
}
// One thread, behind a barrier of all that have added.
FC_DEVICE void release_turn(int* turn, int position) {
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
  asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(turn), "r"(position) : "memory");
}

}  // namespace fc
