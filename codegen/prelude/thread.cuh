// The indices of a thread, and barriers of a block and of a warp.
#pragma once

#include "types.cuh"

namespace fc {

FC_DEVICE int thread_index() { return static_cast<int>(threadIdx.x); }
FC_DEVICE int block_x() { return static_cast<int>(blockIdx.x); }
FC_DEVICE int block_y() { return static_cast<int>(blockIdx.y); }
FC_DEVICE int block_z() { return static_cast<int>(blockIdx.z); }
FC_DEVICE int grid_x() { return static_cast<int>(gridDim.x); }

// All threads of the block arrive; shared memory written before is visible after.
FC_DEVICE void barrier() { __syncthreads(); }

// The value of the lane whose index differs in the bits of `mask`. All 32 lanes call it.
FC_DEVICE float shuffle_xor(float value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}
FC_DEVICE int shuffle_xor(int value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }

// The value of lane `from`. All 32 lanes call it.
FC_DEVICE float shuffle(float value, int from) { return __shfl_sync(0xffffffffu, value, from); }

// A number that is the same in all 32 lanes, known as such to the compiler.
FC_DEVICE int uniform(int value) { return __shfl_sync(0xffffffffu, value, 0); }

// Whether the condition holds in all 32 lanes, which all call it.
FC_DEVICE bool all_lanes(bool holds) { return __all_sync(0xffffffffu, holds) != 0; }

// In how many of the 32 lanes, which all call it, the condition holds.
FC_DEVICE int count_lanes(bool holds) { return __popc(__ballot_sync(0xffffffffu, holds)); }

// The same value, but one the compiler cannot compute ahead: what is derived from it inside a loop
// stays there, as an offset of an instruction rather than a register of its own.
FC_DEVICE u32 in_place(u32 address) {
  asm volatile("" : "+r"(address));
  return address;
}
FC_DEVICE float in_place(float value) {
  asm volatile("" : "+f"(value));
  return value;
}

}  // namespace fc
