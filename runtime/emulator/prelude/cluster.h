// The blocks of a cluster. The machine runs them together; an address in another block's shared
// memory has its rank in the upper bits.
#pragma once

#include "language.h"
#include "mbarrier.h"
#include "types.cuh"

namespace fc {

FC_DEVICE void enter_cluster(int line = __builtin_LINE()) {
  fc_machine->arrive_at_cluster(0, line);
}
FC_DEVICE void arrive_at_cluster(int line = __builtin_LINE()) {
  fc_machine->arrive_at_cluster(1, line);
}
FC_DEVICE void wait_cluster(int line = __builtin_LINE()) { fc_machine->wait_cluster(line); }

FC_DEVICE u32 cluster_address(u32 address, int block, int line = __builtin_LINE()) {
  return fc_machine->cluster_address(address, block, line);
}

template <int n>
FC_DEVICE void store_cluster(u32 address, const float* in, int line = __builtin_LINE()) {
  fc_machine->store_cluster(address, in, 4 * n, line);
}

FC_DEVICE void arrive_in_both(u32 mbarrier, u32 other_block, int line = __builtin_LINE()) {
  arrive(mbarrier, line);
  arrive(mbarrier + other_block, line);
}
FC_DEVICE void arrive_in_both_if(bool arrives, u32 mbarrier, u32 other_block,
                                 int line = __builtin_LINE()) {
  if (arrives) arrive_in_both(mbarrier, other_block, line);
}
FC_DEVICE void arrive_as_warp_in_both(u32 mbarrier, u32 other_block, int lane,
                                      int line = __builtin_LINE()) {
  fc_machine->sync_warp(line);
  if (lane == 0) arrive_in_both(mbarrier, other_block, line);
}
FC_DEVICE void arrive_in_first(u32 mbarrier, int line = __builtin_LINE()) {
  arrive(cluster_address(mbarrier, 0, line), line);
}

FC_DEVICE void store_in_both(u32 address, u32 word, u32 other_block, int line = __builtin_LINE()) {
  store_shared(address, word, line);
  fc_machine->store_cluster(address + other_block, &word, 4, line);
}
FC_DEVICE void publish_in_both(u32 mbarrier, u32 other_block, int line = __builtin_LINE()) {
  arrive_in_both(mbarrier, other_block, line);
}
FC_DEVICE void wait_published(u32 mbarrier, int parity, int line = __builtin_LINE()) {
  wait_phase(mbarrier, parity, line);
}
FC_DEVICE u32 load_published(u32 address, int line = __builtin_LINE()) {
  return load_shared_word(address, line);
}

}  // namespace fc
