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

// arrive_if at an mbarrier of this block and at the one in the same place of the cluster's other block.
// `other_block` is what turns an address of this block into the same one of that block, if added.
FC_DEVICE void arrive_in_both_if(bool arrives, u32 mbarrier, u32 other_block) {
  arrive_if(arrives, mbarrier);
  asm volatile(
      "{\n"
      ".reg .pred arrives;\n"
      "setp.ne.b32 arrives, %1, 0;\n"
      "@arrives mbarrier.arrive.shared::cluster.b64 _, [%0];\n"
      "}" ::"r"(mbarrier + other_block),
      "r"(static_cast<int>(arrives))
      : "memory");
}
FC_DEVICE void arrive_in_both(u32 mbarrier, u32 other_block) {
  arrive_in_both_if(true, mbarrier, other_block);
}
// Once for a warp, when all its lanes have come.
FC_DEVICE void arrive_as_warp_in_both(u32 mbarrier, u32 other_block, int lane) {
  __syncwarp();
  arrive_in_both_if(lane == 0, mbarrier, other_block);
}
// arrive at the mbarrier in the same place of the cluster's first block.
FC_DEVICE void arrive_in_first(u32 mbarrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(cluster_address(mbarrier, 0))
               : "memory");
}

// A word for threads of both blocks: who waits with wait_published for an arrival of publish_in_both
// knows what was stored in front of it.
FC_DEVICE void store_in_both(u32 address, u32 word, u32 other_block) {
  store_shared(address, word);
  asm volatile("st.shared::cluster.b32 [%0], %1;" ::"r"(address + other_block), "r"(word)
               : "memory");
}
FC_DEVICE void publish_in_both(u32 mbarrier, u32 other_block) {
  arrive(mbarrier);
  asm volatile(
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(mbarrier + other_block)
      : "memory");
}
FC_DEVICE void wait_published(u32 mbarrier, int parity) {
  asm volatile(
      "{\n"
      ".reg .pred over;\n"
      "again:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 over, [%0], %1;\n"
      "@over bra done;\n"
      "bra again;\n"
      "done:\n"
      "}" ::"r"(mbarrier),
      "r"(parity)
      : "memory");
}
// By lane 0 of a warp alone, which the compiler is told.
FC_DEVICE u32 load_published(u32 address) { return __shfl_sync(1u, load_shared_word(address), 0); }

// To a cluster_address; the block there has begun, and does not leave before it knows of the write.
template <int n>
FC_DEVICE void store_cluster(u32 address, const float* in) {
  FC_STORE_FLOATS("shared::cluster")
}

}  // namespace fc
