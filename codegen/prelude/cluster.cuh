// The blocks of a cluster (sm_90): they run at the same time, have a barrier, and write each
// other's shared memory.
#pragma once

#include "mbarrier.cuh"
#include "memory.cuh"
#include "types.cuh"

namespace fc {

// All threads of the cluster that have not left arrive, and then wait. What a thread did before it
// arrived, in whichever block's memory, those know who have waited; of one that enters, they know
// that it runs.
FC_DEVICE void enter_cluster() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
FC_DEVICE void arrive_at_cluster() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
FC_DEVICE void wait_cluster() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }

// Where an address of shared memory lies in another block of the cluster.
FC_DEVICE u32 cluster_address(u32 address, int block) {
  u32 there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(block));
  return there;
}

// Arrives at an mbarrier of this block and at the one in the same place of the cluster's other block.
// `other_block` is what turns an address of this block into the same one of that block, if added.
FC_DEVICE void arrive_in_both(u32 mbarrier, u32 other_block) {
  arrive(mbarrier);
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(mbarrier + other_block)
               : "memory");
}
// Once for a warp, when all its lanes have come.
FC_DEVICE void arrive_as_warp_in_both(u32 mbarrier, u32 other_block, int lane) {
  __syncwarp();
  if (lane == 0) arrive_in_both(mbarrier, other_block);
}

// To a cluster_address; the block there has begun, and does not leave before it knows of the write.
template <int n>
FC_DEVICE void store_cluster(u32 address, const float* in) {
  FC_STORE_FLOATS("shared::cluster")
}

}  // namespace fc
