// Products of opaque blocks. The machine deals the elements of a block out to the lanes in an order
// of its own, another one for each kind of block, so that a kernel that counts on any order fails.
#pragma once

#include "language.h"
#include "mma_m16n8k16.h"
#include "types.cuh"

namespace fc {

struct sum_block {
  float held[8] = {};
};
template <class T, bool transposed>
struct left_block {
  u32 held[8];
};
template <class T, bool transposed>
struct right_block {
  u32 held[8];
};

template <class T, bool transposed>
FC_DEVICE void load_block(left_block<T, transposed>& block, u32 address, u32 pitch,
                          int line = __builtin_LINE()) {
  fc_machine->load_block(block.held, address, pitch, 0, transposed, line);
}
template <class T, bool transposed>
FC_DEVICE void load_block(right_block<T, transposed>& block, u32 address, u32 pitch,
                          int line = __builtin_LINE()) {
  fc_machine->load_block(block.held, address, pitch, 1, transposed, line);
}

template <class T, bool left_transposed, bool right_transposed>
FC_DEVICE void multiply_blocks(sum_block& d, const left_block<T, left_transposed>& a,
                               const right_block<T, right_transposed>& b,
                               int line = __builtin_LINE()) {
  fc_machine->multiply_blocks(d.held, a.held, b.held, is_bf16(T{}), line);
}

FC_DEVICE void store_block(u32 address, u32 pitch, const sum_block& d,
                           int line = __builtin_LINE()) {
  fc_machine->store_block(address, pitch, d.held, line);
}

}  // namespace fc
