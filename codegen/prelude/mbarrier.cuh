// Barriers in shared memory (sm_90) that count arrivals and the bytes of bulk copies. A phase of
// one is over when both have come; its parity, 0 for the first, tells a phase from the next.
#pragma once

#include "types.cuh"

namespace fc {

// By one thread, before any other touches it. 8 bytes at a multiple of 8.
FC_DEVICE void init_mbarrier(u32 mbarrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(mbarrier), "r"(arrivals) : "memory");
}

// By the thread that has initialised them, before the barrier behind which others use them.
FC_DEVICE void publish_mbarriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Arrives, and makes the phase wait for that many bytes of bulk copies besides.
FC_DEVICE void arrive_expect_tx(u32 mbarrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(mbarrier), "r"(bytes)
               : "memory");
}

FC_DEVICE void arrive(u32 mbarrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(mbarrier) : "memory");
}

// Arrives in the threads for which `arrives` holds. The instruction is predicated instead of standing
// behind a branch: where one lane of a warp takes a branch, ptxas (13.0) may let the lane and its warp go
// on apart, so that each waits for the other for ever, and keeps addresses out of uniform registers.
FC_DEVICE void arrive_if(bool arrives, u32 mbarrier) {
  asm volatile(
      "{\n"
      ".reg .pred arrives;\n"
      "setp.ne.b32 arrives, %1, 0;\n"
      "@arrives mbarrier.arrive.shared::cta.b64 _, [%0];\n"
      "}" ::"r"(mbarrier),
      "r"(static_cast<int>(arrives))
      : "memory");
}

// Once for a warp, when all its lanes have come.
FC_DEVICE void arrive_as_warp(u32 mbarrier, int lane) {
  __syncwarp();
  arrive_if(lane == 0, mbarrier);
}

// Waits until the phase of that parity is over.
FC_DEVICE void wait_phase(u32 mbarrier, int parity) {
  asm volatile(
      "{\n"
      ".reg .pred over;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n"
      "@over bra done;\n"
      "bra again;\n"
      "done:\n"
      "}" ::"r"(mbarrier),
      "r"(parity)
      : "memory");
}

}  // namespace fc
