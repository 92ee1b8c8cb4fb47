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

FC_DEVICE void load_box(u32 target, const tensor_map& map, u32 mbarrier, int x, int y,
                        source_line line = {__builtin_LINE()}) {
  const int at[] = {x, y};
  fc_machine->load_box(target, &map, mbarrier, at, 2, line.number);
}
FC_DEVICE void load_box(u32 target, const tensor_map& map, u32 mbarrier, int x, int y, int z,
                        source_line line = {__builtin_LINE()}) {
  const int at[] = {x, y, z};
  fc_machine->load_box(target, &map, mbarrier, at, 3, line.number);
}
FC_DEVICE void load_box(u32 target, const tensor_map& map, u32 mbarrier, int x, int y, int z, int u,
                        source_line line = {__builtin_LINE()}) {
  const int at[] = {x, y, z, u};
  fc_machine->load_box(target, &map, mbarrier, at, 4, line.number);
}
FC_DEVICE void load_box(u32 target, const tensor_map& map, u32 mbarrier, int x, int y, int z, int u,
                        int v, source_line line = {__builtin_LINE()}) {
  const int at[] = {x, y, z, u, v};
  fc_machine->load_box(target, &map, mbarrier, at, 5, line.number);
}

FC_DEVICE void store_box(const tensor_map& map, u32 source, int x, int y,
                         source_line line = {__builtin_LINE()}) {
  const int at[] = {x, y};
  fc_machine->store_box(&map, source, at, 2, line.number);
}
FC_DEVICE void store_box(const tensor_map& map, u32 source, int x, int y, int z,
                         source_line line = {__builtin_LINE()}) {
  const int at[] = {x, y, z};
  fc_machine->store_box(&map, source, at, 3, line.number);
}
FC_DEVICE void store_box(const tensor_map& map, u32 source, int x, int y, int z, int u,
                         source_line line = {__builtin_LINE()}) {
  const int at[] = {x, y, z, u};
  fc_machine->store_box(&map, source, at, 4, line.number);
}
FC_DEVICE void store_box(const tensor_map& map, u32 source, int x, int y, int z, int u, int v,
                         source_line line = {__builtin_LINE()}) {
  const int at[] = {x, y, z, u, v};
  fc_machine->store_box(&map, source, at, 5, line.number);
}

FC_DEVICE void commit_stores() { fc_machine->commit_stores(); }

template <int pending>
FC_DEVICE void wait_stores_read() {
  fc_machine->wait_stores_read(pending);
}

FC_DEVICE void fence_async() { fc_machine->fence_async(); }

FC_DEVICE void prefetch_map(const tensor_map&) {}

}  // namespace fc
