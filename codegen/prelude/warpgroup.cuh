// Four neighbouring warps that start at a multiple of four: a warpgroup (sm_90a). How warpgroups
// share registers out, and how some of a block's threads meet while others go on.
#pragma once

#include "types.cuh"

namespace fc {

// By all warps of a warpgroup: gives registers of the block back, or takes some, waiting until they
// are there. A multiple of 8 from 24 to 256, the new count of each thread.
template <int registers>
FC_DEVICE void shrink_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
FC_DEVICE void grow_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

// The first `threads` threads to come to a numbered barrier (1 to 15), whole warps, meet: `meet`
// waits for the others, `signal` goes on. Shared memory written before is visible to those that
// wait.
FC_DEVICE void meet(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
FC_DEVICE void signal(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

}  // namespace fc
