// Bulk copies of tiles between global and shared memory by the copy engine (sm_90). A tensor map,
// made by the host, says where the tensor lies, how large a tile (box) is and how its lines are
// swizzled (shared_tile.cuh); coordinates count elements, the dense dimension first. What lies
// outside the tensor is read as zero and not written.
#pragma once

#include "types.cuh"

namespace fc {

struct alignas(64) tensor_map {
  u64 words[16];
};

// By one thread. The box's bytes arrive at the mbarrier, whoever expects them. `target` is a
// multiple of 128, and of eight lines of the swizzle.
FC_DEVICE void load_box(u32 target, const tensor_map& map, u32 mbarrier, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4}], [%2];" ::"r"(target),
      "l"(&map), "r"(mbarrier), "r"(x), "r"(y)
      : "memory");
}
FC_DEVICE void load_box(u32 target, const tensor_map& map, u32 mbarrier, int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(target),
      "l"(&map), "r"(mbarrier), "r"(x), "r"(y), "r"(z)
      : "memory");
}
FC_DEVICE void load_box(u32 target, const tensor_map& map, u32 mbarrier, int x, int y, int z,
                        int u) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(target),
      "l"(&map), "r"(mbarrier), "r"(x), "r"(y), "r"(z), "r"(u)
      : "memory");
}
FC_DEVICE void load_box(u32 target, const tensor_map& map, u32 mbarrier, int x, int y, int z, int u,
                        int v) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(target),
      "l"(&map), "r"(mbarrier), "r"(x), "r"(y), "r"(z), "r"(u), "r"(v)
      : "memory");
}

// By one thread, after fence_async() in every thread that wrote the box and a barrier among them.
FC_DEVICE void store_box(const tensor_map& map, u32 source, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map),
      "r"(source), "r"(x), "r"(y)
      : "memory");
}
FC_DEVICE void store_box(const tensor_map& map, u32 source, int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(&map),
      "r"(source), "r"(x), "r"(y), "r"(z)
      : "memory");
}
FC_DEVICE void store_box(const tensor_map& map, u32 source, int x, int y, int z, int u) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(
          &map),
      "r"(source), "r"(x), "r"(y), "r"(z), "r"(u)
      : "memory");
}
FC_DEVICE void store_box(const tensor_map& map, u32 source, int x, int y, int z, int u, int v) {
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::
          "l"(&map),
      "r"(source), "r"(x), "r"(y), "r"(z), "r"(u), "r"(v)
      : "memory");
}

// Closes a group of the box stores this thread has issued since the last one.
FC_DEVICE void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Waits until at most `pending` of this thread's newest groups still read shared memory.
template <int pending>
FC_DEVICE void wait_stores_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

// Makes this thread's writes to shared memory visible to the copy engine and to warpgroup products,
// once a barrier has ordered them.
FC_DEVICE void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Brings a map into its cache before the first use.
FC_DEVICE void prefetch_map(const tensor_map& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

}  // namespace fc
