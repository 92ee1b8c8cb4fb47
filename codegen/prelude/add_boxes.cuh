// Sums that the copy engine adds to a tensor of f32 elements (sm_90): boxes from shared memory, as
// store_box takes them.
#pragma once

#include "memory.cuh"
#include "tma.cuh"

namespace fc {

// For a block that adds at its turn: the additions of other blocks that this thread has waited for
// come before those that it asks the copy engine for behind this.
template <bool in_turn>
FC_DEVICE void follow_turn() {
  if constexpr (in_turn) asm volatile("fence.proxy.async.global;" ::: "memory");
}

// By one thread, after fence_async() in every thread that wrote the box and a barrier among them.
// Each element is added by itself, atomically.
#define FC_ADD_BOX(rank, coordinates, places, map_place, box_place)                      \
  template <bool in_turn>                                                                \
  FC_DEVICE void add_box(const tensor_map& map, u32 source, coordinates(FC_PARAMETER)) { \
    follow_turn<in_turn>();                                                              \
    asm volatile("cp.reduce.async.bulk.tensor." rank                                     \
                 ".global.shared::cta.add.tile.bulk_group [" map_place ", {" places      \
                 "}], [" box_place "];" ::coordinates(FC_OPERAND),                       \
                 "l"(&map), "r"(source)                                                  \
                 : "memory");                                                            \
  }
FC_ADD_BOX("2d", FC_COORDINATES_2, "%0, %1", "%2", "%3")
FC_ADD_BOX("3d", FC_COORDINATES_3, "%0, %1, %2", "%3", "%4")
FC_ADD_BOX("4d", FC_COORDINATES_4, "%0, %1, %2, %3", "%4", "%5")
FC_ADD_BOX("5d", FC_COORDINATES_5, "%0, %1, %2, %3, %4", "%5", "%6")

// Waits until all groups of box stores and additions that this thread has committed, but the newest
// `pending`, have been made in global memory, where the thread then sees them.
template <int pending>
FC_DEVICE void wait_stores() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory");
}

// The address at which a lane writes its first pair of columns of an f32 tile, from the layout of a
// product's sums, into a panel whose rows are 128 bytes with the swizzle of that width. Lanes of even
// rows begin with the first fragment of the panel, lanes of odd rows with the third, whose columns
// lie in the other half of the row: so half a warp writes to every bank once. The addresses of the
// other fragments are this one, exclusive or a multiple of 32.
FC_DEVICE u32 row_pairs(u32 tile, int row, int lane) {
  u32 first = tile + row * 128 + ((lane % 4 / 2 ^ row % 8) * 16 ^ row % 2 * 64) + lane % 2 * 8;
  asm volatile("" : "+r"(first));  // no register holds in a loop what follows from it
  return first;
}
// Stores at that address: the pair of the fragment that lanes of even rows are at, or of the fragment
// that lanes of odd rows are at.
FC_DEVICE void store_row_pair(u32 address, int row, const float* even, const float* odd) {
  const bool is_odd = row % 2 != 0;
  const float pair[2] = {is_odd ? odd[0] : even[0], is_odd ? odd[1] : even[1]};
  store_shared<2>(address, pair);
}

}  // namespace fc
