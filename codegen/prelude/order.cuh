// The compiler puts instructions in an order of its own, and looks through an empty asm statement.
#pragma once

#include "types.cuh"

namespace fc {

// Nothing that computes is moved over this. It is one instruction, which tells a profiler that it
// was there, and nobody else.
FC_DEVICE void hold_order() { asm volatile("pmevent 0;" ::: "memory"); }

}  // namespace fc
