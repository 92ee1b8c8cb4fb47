// The counter of the dynamic tile scheduler.
#pragma once

#include "math.cuh"
#include "thread.cuh"

namespace fc {

// One counter for each stream that launches the kernel, since the launches of a stream follow each
// other, and one for each launch that a CUDA graph holds. A counter is zero while no launch uses it.
// The host finds the array by its name when it loads the kernel, and reads off how many there are.
extern "C" {
__device__ int flashcore_tile_counters[8192];
}

// By lane 0 of a warp alone, which the compiler is told, so that what follows from the number takes
// none of the few registers of a producer. The number of the tile after `tile`, of which there are
// `count`; at least that if there is none. Block b of `blocks`, or cluster of blocks, has begun with
// tile b. Without a counter: as many further on as there are blocks, every other time backwards.
FC_DEVICE int next_tile(int counter, int tile, int count, int blocks) {
  if (counter == 0) return 2 * (tile / blocks + 1) * blocks - 1 - tile;
  int* const counter_of_launch = flashcore_tile_counters + (counter - 1);
  const int claimed = atomicAdd(counter_of_launch, 1);
  // Every block increments it until there is no tile left: all together as often as there are
  // tiles.
  if (claimed == count - 1) *counter_of_launch = 0;
  return __shfl_sync(1u, blocks + claimed, 0);
}

}  // namespace fc
