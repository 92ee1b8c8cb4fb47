// Barriers in shared memory that count arrivals and the bytes of boxes. The machine keeps them;
// their words in shared memory belong to it.
#pragma once

#include "language.h"
#include "types.cuh"

namespace fc {

FC_DEVICE void init_mbarrier(u32 mbarrier, int arrivals, int line = __builtin_LINE()) {
  fc_machine->init_mbarrier(mbarrier, arrivals, line);
}
FC_DEVICE void publish_mbarriers() { fc_machine->publish_mbarriers(); }

FC_DEVICE void arrive_expect_tx(u32 mbarrier, u32 bytes, int line = __builtin_LINE()) {
  fc_machine->arrive(mbarrier, bytes, line);
}
FC_DEVICE void arrive(u32 mbarrier, int line = __builtin_LINE()) {
  fc_machine->arrive(mbarrier, 0, line);
}
FC_DEVICE void arrive_if(bool arrives, u32 mbarrier, int line = __builtin_LINE()) {
  if (arrives) arrive(mbarrier, line);
}
FC_DEVICE void arrive_as_warp(u32 mbarrier, int lane, int line = __builtin_LINE()) {
  fc_machine->sync_warp(line);
  if (lane == 0) fc_machine->arrive(mbarrier, 0, line);
}
FC_DEVICE void wait_phase(u32 mbarrier, int parity, int line = __builtin_LINE()) {
  fc_machine->wait_phase(mbarrier, parity, line);
}

}  // namespace fc
