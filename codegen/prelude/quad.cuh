// Four neighbouring lanes of a warp, as they share the columns of an accumulator's fragment.
#pragma once

#include "thread.cuh"
#include "types.cuh"

namespace fc {

// Lane q of a quad gives words i = 0 to 3 and gets word q of the quad's lanes, in their order: a
// row of four fragments, dealt out by columns, becomes one fragment a lane. All 32 lanes call it.
FC_DEVICE void transpose_quad(u32 (&word)[4], int lane) {
  const bool odd = lane & 1, high = lane & 2;
  const u32 near = static_cast<u32>(shuffle_xor(static_cast<int>(odd ? word[0] : word[1]), 1));
  const u32 far = static_cast<u32>(shuffle_xor(static_cast<int>(odd ? word[2] : word[3]), 1));
  const u32 low_0 = odd ? near : word[0], low_1 = odd ? word[1] : near;
  const u32 high_0 = odd ? far : word[2], high_1 = odd ? word[3] : far;
  const u32 other_0 = static_cast<u32>(shuffle_xor(static_cast<int>(high ? low_0 : high_0), 2));
  const u32 other_1 = static_cast<u32>(shuffle_xor(static_cast<int>(high ? low_1 : high_1), 2));
  word[0] = high ? other_0 : low_0;
  word[1] = high ? other_1 : low_1;
  word[2] = high ? high_0 : other_0;
  word[3] = high ? high_1 : other_1;
}

}  // namespace fc
