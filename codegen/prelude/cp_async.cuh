// Asynchronous copies from global to shared memory (sm_80): issued, committed in groups, waited
// for.
#pragma once

#include "types.cuh"

namespace fc {

// Copies the first `valid_bytes` (0 to 16) of a chunk and fills the rest with zeros. Both addresses
// are multiples of 16. With 0 valid bytes the source is not read.
template <class T>
FC_DEVICE void copy_async(u32 target, const T* source, int valid_bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(target), "l"(source),
               "r"(valid_bytes)
               : "memory");
}

// Closes a group of all copies this thread has issued since the last one.
FC_DEVICE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most `pending` of this thread's newest groups are unfinished. Other threads see
// the data after a barrier.
template <int pending>
FC_DEVICE void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

}  // namespace fc
