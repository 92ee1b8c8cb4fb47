// The indices of a thread, and barriers of a block and of a warp.
#pragma once

#include "convert.h"
#include "language.h"
#include "types.cuh"

namespace fc {

FC_DEVICE int thread_index() { return fc_machine->thread_index(); }
FC_DEVICE int block_x() { return fc_machine->block_index(0); }
FC_DEVICE int block_y() { return fc_machine->block_index(1); }
FC_DEVICE int block_z() { return fc_machine->block_index(2); }
FC_DEVICE int grid_x() { return fc_machine->grid_extent(0); }

FC_DEVICE void barrier(int line = __builtin_LINE()) { fc_machine->barrier(line); }

FC_DEVICE u32 in_place(u32 address) { return address; }
FC_DEVICE float in_place(float value) { return value; }

FC_DEVICE float shuffle_xor(float value, int mask, int line = __builtin_LINE()) {
  return fc_machine->shuffle_xor(value, mask, line);
}
FC_DEVICE int shuffle_xor(int value, int mask, int line = __builtin_LINE()) {
  const float moved = fc_machine->shuffle_xor(bits_float(static_cast<u32>(value)), mask, line);
  return static_cast<int>(float_bits(moved));
}

FC_DEVICE float shuffle(float value, int from, int line = __builtin_LINE()) {
  return fc_machine->shuffle_xor(value, thread_index() % 32 ^ from, line);
}

FC_DEVICE int uniform(int value, int line = __builtin_LINE()) {
  return fc_machine->uniform(value, line);
}

FC_DEVICE bool all_lanes(bool holds, int line = __builtin_LINE()) {
  int all = holds ? 1 : 0;
  for (int mask = 1; mask < 32; mask *= 2) all &= shuffle_xor(all, mask, line);
  return all != 0;
}

FC_DEVICE int count_lanes(bool holds, int line = __builtin_LINE()) {
  int count = holds ? 1 : 0;
  for (int mask = 1; mask < 32; mask *= 2) count += shuffle_xor(count, mask, line);
  return count;
}

}  // namespace fc
