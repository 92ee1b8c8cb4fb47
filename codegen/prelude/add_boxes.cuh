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
template <bool in_turn>
FC_DEVICE void add_box(const tensor_map& map, u32 source, int x, int y) {
  follow_turn<in_turn>();
  asm volatile(
      "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3}], "
      "[%1];" ::"l"(&map),
      "r"(source), "r"(x), "r"(y)
      : "memory");
}
template <bool in_turn>
FC_DEVICE void add_box(const tensor_map& map, u32 source, int x, int y, int z) {
  follow_turn<in_turn>();
  asm volatile(
      "cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3, %4}], "
      "[%1];" ::"l"(&map),
      "r"(source), "r"(x), "r"(y), "r"(z)
      : "memory");
}
template <bool in_turn>
FC_DEVICE void add_box(const tensor_map& map, u32 source, int x, int y, int z, int u) {
  follow_turn<in_turn>();
  asm volatile(
      "cp.reduce.async.bulk.tensor.4d.global.shared::cta.add.tile.bulk_group "
      "[%0, {%2, %3, %4, %5}], [%1];" ::"l"(&map),
      "r"(source), "r"(x), "r"(y), "r"(z), "r"(u)
      : "memory");
}
template <bool in_turn>
FC_DEVICE void add_box(const tensor_map& map, u32 source, int x, int y, int z, int u, int v) {
  follow_turn<in_turn>();
  asm volatile(
      "cp.reduce.async.bulk.tensor.5d.global.shared::cta.add.tile.bulk_group "
      "[%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(&map),
      "r"(source), "r"(x), "r"(y), "r"(z), "r"(u), "r"(v)
      : "memory");
}

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
