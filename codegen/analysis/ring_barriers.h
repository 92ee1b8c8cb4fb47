// The mbarriers of rings: behind all tiles in shared memory, for every slot one that says it is
// full and one that says it is empty. Who fills a slot behind its own last product on it asks
// nobody whether it is empty.
#pragma once

#include <cstdint>
#include <map>

#include "dsl/ir/function.h"

namespace flashcore {

/// Who says that a slot has been read: each thread for itself, where it holds a scalar; one lane of
/// a warp, where threads read a tile; one thread of a warpgroup, where its products do.
enum class Releaser : std::uint8_t { thread, warp, warpgroup };

Releaser releaser_of(const ir::Function& f, ir::BufferId ring);

/// How many arrive before a slot is full: the thread that expects the bytes of a copy or hands a scalar on, or
/// all warps that write parts of a tile.
int fills_of(const ir::Function& f, ir::BufferId ring);

struct RingBarriers {
  std::map<ir::BufferId, ir::Buffer> rings;  ///< with their barriers, and the slots of scalars
  int end = 0;                               ///< bytes of shared memory, barriers included
};

/// Places the barriers of the rings that a program fills, where tiles take the first `bytes` bytes.
RingBarriers ring_barriers(const ir::Function& f, int bytes);

}  // namespace flashcore
