// Boxes of tensors to and from shared memory. The machine keeps a load in flight until a thread
// waits for the phase of its mbarrier, and a store until its thread waits for it.
#pragma once

#include "language.h"
#include "types.cuh"

namespace fc {

// No number, so that a coordinate is not taken for it.
struct source_line {
  int number;
};

// As runtime/emulator/emulated_tensor_map.h says.
struct alignas(64) tensor_map {
  u64 words[16];
};

// The coordinates of a tensor of each rank, as parameters and as values.
#define FC_COORDINATES_2(of) of(x), of(y)
#define FC_COORDINATES_3(of) FC_COORDINATES_2(of), of(z)
#define FC_COORDINATES_4(of) FC_COORDINATES_3(of), of(u)
#define FC_COORDINATES_5(of) FC_COORDINATES_4(of), of(v)
#define FC_PARAMETER(coordinate) int coordinate
#define FC_VALUE(coordinate) coordinate
#define FC_BOX_COPIES(rank, coordinates)                                                      \
  FC_DEVICE void load_box(u32 target, const tensor_map& map, u32 mbarrier,                    \
                          coordinates(FC_PARAMETER), source_line line = {__builtin_LINE()}) { \
    const int at[] = {coordinates(FC_VALUE)};                                                 \
    fc_machine->load_box(target, &map, mbarrier, at, rank, 0, line.number);                   \
  }                                                                                           \
  FC_DEVICE void load_box_for_cluster(u32 target, const tensor_map& map, u32 mbarrier,        \
                                      coordinates(FC_PARAMETER),                              \
                                      source_line line = {__builtin_LINE()}) {                \
    const int at[] = {coordinates(FC_VALUE)};                                                 \
    fc_machine->load_box(target, &map, mbarrier, at, rank, 1, line.number);                   \
  }                                                                                           \
  FC_DEVICE void store_box(const tensor_map& map, u32 source, coordinates(FC_PARAMETER),      \
                           source_line line = {__builtin_LINE()}) {                           \
    const int at[] = {coordinates(FC_VALUE)};                                                 \
    fc_machine->store_box(&map, source, at, rank, line.number);                               \
  }
FC_BOX_COPIES(2, FC_COORDINATES_2)
FC_BOX_COPIES(3, FC_COORDINATES_3)
FC_BOX_COPIES(4, FC_COORDINATES_4)
FC_BOX_COPIES(5, FC_COORDINATES_5)

FC_DEVICE void commit_stores() { fc_machine->commit_stores(); }

template <int pending>
FC_DEVICE void wait_stores_read() {
  fc_machine->wait_stores_read(pending);
}

FC_DEVICE void fence_async() { fc_machine->fence_async(); }

FC_DEVICE void prefetch_map(const tensor_map&) {}

}  // namespace fc
