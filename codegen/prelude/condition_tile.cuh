// The conditions of a tile that a thread holds, a bit each: as bools they would take a register each.
#pragma once

#include "shared_elements.cuh"
#include "thread.cuh"
#include "types.cuh"

namespace fc {

// In fragments (i, j) of `slots` elements, as arrays of floats are.
template <int rows, int columns, int slots>
struct condition_tile {
  u32 word[(rows * columns * slots + 31) / 32];
};

// Elements `slot` and `slot + 1` of a fragment, which lie side by side in shared memory. Pairs are loaded
// in their order. A finished word is opaque to the compiler, which otherwise keeps the loaded pairs in
// registers instead of the word.
template <int rows, int columns, int slots>
FC_DEVICE void load_conditions(condition_tile<rows, columns, slots>& tile, int i, int j, int slot,
                               u32 address) {
  const int bit = (i * columns + j) * slots + slot;
  u32& word = tile.word[bit / 32];
  const u32 pair = (load_shared_conditions(address) & 3u) << bit % 32;
  word = bit % 32 == 0 ? pair : word | pair;
  if (bit % 32 == 30) word = in_place(word);
}

template <int rows, int columns, int slots>
FC_DEVICE bool condition(const condition_tile<rows, columns, slots>& tile, int i, int j, int slot) {
  const int bit = (i * columns + j) * slots + slot;
  return (tile.word[bit / 32] >> bit % 32 & 1u) != 0;
}

}  // namespace fc
