// Sums that the copy engine adds. The machine keeps an addition in flight until its thread waits for
// it, or leaves.
#pragma once

#include "memory.h"
#include "tma.h"

namespace fc {

template <bool in_turn>
FC_DEVICE void follow_turn() {}

template <bool in_turn>
FC_DEVICE void add_box(const tensor_map& map, u32 source, int x, int y,
                       source_line line = {__builtin_LINE()}) {
  const int at[] = {x, y};
  fc_machine->add_box(&map, source, at, 2, in_turn, line.number);
}
template <bool in_turn>
FC_DEVICE void add_box(const tensor_map& map, u32 source, int x, int y, int z,
                       source_line line = {__builtin_LINE()}) {
  const int at[] = {x, y, z};
  fc_machine->add_box(&map, source, at, 3, in_turn, line.number);
}
template <bool in_turn>
FC_DEVICE void add_box(const tensor_map& map, u32 source, int x, int y, int z, int u,
                       source_line line = {__builtin_LINE()}) {
  const int at[] = {x, y, z, u};
  fc_machine->add_box(&map, source, at, 4, in_turn, line.number);
}
template <bool in_turn>
FC_DEVICE void add_box(const tensor_map& map, u32 source, int x, int y, int z, int u, int v,
                       source_line line = {__builtin_LINE()}) {
  const int at[] = {x, y, z, u, v};
  fc_machine->add_box(&map, source, at, 5, in_turn, line.number);
}

template <int pending>
FC_DEVICE void wait_stores() {
  fc_machine->wait_stores(pending);
}

FC_DEVICE u32 row_pairs(u32 tile, int row, int lane) {
  return tile + row * 128 + ((lane % 4 / 2 ^ row % 8) * 16 ^ row % 2 * 64) + lane % 2 * 8;
}
FC_DEVICE void store_row_pair(u32 address, int row, const float* even, const float* odd,
                              int line = __builtin_LINE()) {
  store_shared<2>(address, row % 2 != 0 ? odd : even, line);
}

}  // namespace fc
