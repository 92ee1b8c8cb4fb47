// Asynchronous copies from global to shared memory. The machine keeps them in flight until the wait
// that covers them.
#pragma once

#include "language.h"
#include "types.cuh"

namespace fc {

template <class T>
FC_DEVICE void copy_async(u32 target, const T* source, int valid_bytes,
                          int line = __builtin_LINE()) {
  fc_machine->copy_async(target, source, valid_bytes, line);
}

FC_DEVICE void commit_copies() { fc_machine->commit_copies(); }

template <int pending>
FC_DEVICE void wait_copies() {
  fc_machine->wait_copies(pending);
}

}  // namespace fc
