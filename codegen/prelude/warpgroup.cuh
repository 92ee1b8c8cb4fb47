// Four neighbouring warps that start at a multiple of four: a warpgroup (sm_90a). Register counts
// of warpgroups, and the named barriers at which some warps of a block synchronise.
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

// A named barrier (1 to 15) completes when `threads` threads, whole warps, have come to it: `meet`
// waits for the others, `signal` goes on. Shared memory written before is visible to those that
// wait.
FC_DEVICE void meet(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
FC_DEVICE void signal(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

}  // namespace fc
