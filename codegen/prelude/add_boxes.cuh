// Sums that the copy engine adds to a tensor of f32 elements (sm_90): boxes from shared memory, as
// store_box takes them.
#pragma once

#include "memory.cuh"
#include "tma.cuh"

namespace fc {

// Of a block at its turn: what the thread knows that other blocks have added comes before what the
// engine adds from here on.
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

// Waits until at most `pending` of this thread's newest groups of box stores and additions are
// unfinished; it sees what the others have written.
template <int pending>
FC_DEVICE void wait_stores() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory");
}

// A pair of a row in the layout of a product's sums: `here`, at the address, or from lanes of an odd
// row `on`, the pair two fragments on, in the other half of the panel's 128 bytes. The lanes of half
// a warp then write to every bank once.
FC_DEVICE void store_row_pair(u32 address, int row, const float* here, const float* on) {
  const bool odd = row % 2 != 0;
  const float pair[2] = {odd ? on[0] : here[0], odd ? on[1] : here[1]};
  store_shared<2>(odd ? address ^ 64 : address, pair);
}

}  // namespace fc
