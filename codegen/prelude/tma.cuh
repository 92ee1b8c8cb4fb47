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

// The coordinates of a tensor of each rank, as parameters and as operands of an instruction.
#define FC_COORDINATES_2(of) of(x), of(y)
#define FC_COORDINATES_3(of) FC_COORDINATES_2(of), of(z)
#define FC_COORDINATES_4(of) FC_COORDINATES_3(of), of(u)
#define FC_COORDINATES_5(of) FC_COORDINATES_4(of), of(v)
#define FC_PARAMETER(coordinate) int coordinate
#define FC_OPERAND(coordinate) "r"(coordinate)

// load_box, by one thread. The box's bytes arrive at the mbarrier, whoever expects them. `target` is
// a multiple of 128, and of eight lines of the swizzle.
// load_box_for_cluster: into both blocks of the cluster, at the same places.
// store_box, by one thread, after fence_async() in every thread that wrote the box and a barrier
// among them.
#define FC_LOAD(begin, to, end, rank, coordinates, places, map_place, box_place, mbarrier_place) \
  asm volatile(begin "cp.async.bulk.tensor." rank                                                \
                     ".shared::cluster.global.mbarrier::complete_tx::bytes" to " [" box_place    \
                     "], [" map_place ", {" places "}], [" mbarrier_place                        \
                     "]" end ::coordinates(FC_OPERAND),                                          \
               "l"(&map), "r"(target), "r"(mbarrier)                                             \
               : "memory");
#define FC_BOX_COPIES(rank, coordinates, places, map_place, box_place, mbarrier_place)       \
  FC_DEVICE void load_box(                                                                   \
      u32 target, const tensor_map& map, u32 mbarrier,                                       \
      coordinates(FC_PARAMETER)){FC_LOAD("", "", ";", rank, coordinates, places, map_place,  \
                                         box_place, mbarrier_place)} FC_DEVICE void          \
  load_box_for_cluster(u32 target, const tensor_map& map, u32 mbarrier,                      \
                       coordinates(FC_PARAMETER)){                                           \
      FC_LOAD("{.reg .b16 both; mov.b16 both, 3; ", ".multicast::cluster", ", both;}", rank, \
              coordinates, places, map_place, box_place, mbarrier_place)} FC_DEVICE void     \
  store_box(const tensor_map& map, u32 source, coordinates(FC_PARAMETER)) {                  \
    asm volatile("cp.async.bulk.tensor." rank ".global.shared::cta.bulk_group [" map_place   \
                 ", {" places "}], [" box_place "];" ::coordinates(FC_OPERAND),              \
                 "l"(&map), "r"(source)                                                      \
                 : "memory");                                                                \
  }
FC_BOX_COPIES("2d", FC_COORDINATES_2, "%0, %1", "%2", "%3", "%4")
FC_BOX_COPIES("3d", FC_COORDINATES_3, "%0, %1, %2", "%3", "%4", "%5")
FC_BOX_COPIES("4d", FC_COORDINATES_4, "%0, %1, %2, %3", "%4", "%5", "%6")
FC_BOX_COPIES("5d", FC_COORDINATES_5, "%0, %1, %2, %3, %4", "%5", "%6", "%7")

// Closes a group of the box stores this thread has issued since the last one.
FC_DEVICE void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Waits until at most `pending` of this thread's newest groups still read shared memory.
template <int pending>
FC_DEVICE void wait_stores_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

// Makes this thread's writes to shared memory visible to the copy engine and to warpgroup products,
// and lets its reads and writes come before what the engine writes, once a barrier has ordered them.
FC_DEVICE void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Brings a map into its cache before the first use.
FC_DEVICE void prefetch_map(const tensor_map& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

}  // namespace fc
