// How many registers the threads of a producer and of consumers have.
#pragma once

#include "dsl/schedule.h"

namespace flashcore {

/// What __launch_bounds__ leaves a thread of a block, of which so many fit on a multiprocessor: a
/// multiple of 8, or 255.
int registers_at_start(int threads, int blocks_per_processor);

/// Registers of a thread. None where roles need no split: there is no producer, or the compiler may
/// give every thread 255.
struct RegisterSplit {
  int producer = 0, consumer = 0;
};

/// Together, the warpgroups get no more than they had at the start.
RegisterSplit register_split(const Schedule& schedule);

/// Of all threads of a block together.
int registers_of_block(const Schedule& schedule, const RegisterSplit& split);

}  // namespace flashcore
