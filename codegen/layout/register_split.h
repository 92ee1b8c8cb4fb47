// How a block with a producer shares out its registers.
#pragma once

#include "dsl/schedule.h"

namespace flashcore {

/// Registers of a thread. None where nothing is to be shared out: all threads do the same, or the
/// compiler may give every one 255.
struct RegisterSplit {
  int producer = 0, consumer = 0;
};

/// Together, the warpgroups get no more than they had at the start.
RegisterSplit register_split(const Schedule& schedule);

}  // namespace flashcore
