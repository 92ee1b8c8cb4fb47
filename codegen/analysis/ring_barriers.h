// The mbarriers of rings: behind all tiles in shared memory, for every slot one that says it is
// full and one that says it is empty. Who fills a slot behind its own last product on it asks
// nobody whether it is empty.
#pragma once

#include <map>

#include "dsl/ir/function.h"
#include "dsl/schedule.h"

namespace flashcore {

struct RingBarriers {
  /// Bytes from the start of shared memory to the full barriers of a ring; the empty ones, if any,
  /// follow them.
  std::map<ir::BufferId, int> at;
  /// The same for the ring of tile numbers that the producer draws; behind its barriers the
  /// numbers, of 4 bytes.
  int drawn_at = 0;
  int end = 0;  ///< bytes of shared memory, barriers included

  /// A number is there before the consumers ask for it, and one more while they work on that.
  static constexpr int drawn_slots = 2;
};

/// The barriers of the rings that a program fills, where tiles take the first `bytes` bytes.
RingBarriers ring_barriers(const ir::Function& f, const Schedule& schedule, int bytes);

}  // namespace flashcore
