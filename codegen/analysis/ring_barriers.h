// The mbarriers of rings: behind all tiles in shared memory, for every slot one that says it is full and one
// that says it is empty.
#pragma once

#include <map>

#include "dsl/ir/function.h"

namespace flashcore {

struct RingBarriers {
  /// Bytes from the start of shared memory to the full barriers of a ring; the empty ones follow them.
  std::map<ir::BufferId, int> at;
  int end = 0;  ///< bytes of shared memory, barriers included
};

/// The barriers of the rings that a program fills, where tiles take the first `bytes` bytes.
RingBarriers ring_barriers(const ir::Function& f, int bytes);

}  // namespace flashcore
