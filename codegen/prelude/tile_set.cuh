// The tiles of an axis that a block visits, as a scan has found them: words in shared memory, eight
// tiles each. Bit n of a word: tile n of the eight holds something visible. Bit 8 + n: it holds
// something hidden too. Of tiles beyond the words nothing is known; they are visited and masked.
#pragma once

#include "math.cuh"
#include "memory.cuh"
#include "thread.cuh"

namespace fc {

// What the lanes of a warp found about eight tiles.
FC_DEVICE void note_tiles(u32 word, u32 found, int lane) {
#pragma unroll
  for (int mask = 1; mask < 32; mask *= 2)
    found |= static_cast<u32>(shuffle_xor(static_cast<int>(found), mask));
  if (lane == 0) store_shared(word, found);
}

// The last tile before `tile` to visit; below `begin` if there is none.
template <int words>
FC_DEVICE int tile_before(u32 set, int tile, int begin) {
  --tile;
  if (tile >= words * 8) return tile;
  while (tile >= begin) {
    const u32 left = load_shared_word(set + tile / 8 * 4) & 0xffu & ((2u << tile % 8) - 1u);
    if (left) return tile / 8 * 8 + highest_bit(left);
    tile = tile / 8 * 8 - 1;
  }
  return tile;
}

// The first tile after `tile` to visit; `end` or beyond if there is none.
template <int words>
FC_DEVICE int tile_after(u32 set, int tile, int end) {
  ++tile;
  while (tile < end && tile < words * 8) {
    const u32 left = load_shared_word(set + tile / 8 * 4) & 0xffu & (~0u << tile % 8);
    if (left) return tile / 8 * 8 + lowest_bit(left);
    tile = tile / 8 * 8 + 8;
  }
  return tile;
}

// Whether a tile that is visited holds something hidden.
template <int words>
FC_DEVICE bool tile_is_masked(u32 set, int tile) {
  return tile >= words * 8 || (load_shared_word(set + tile / 8 * 4) >> (8 + tile % 8) & 1u) != 0;
}

}  // namespace fc
