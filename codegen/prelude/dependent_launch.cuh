// Kernels that start beside the end of the one launched before them (sm_90).
#pragma once

#include "types.cuh"

namespace fc {

// Returns once the kernels launched before this one have ended, and their writes are visible.
FC_DEVICE void wait_for_kernels() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
// The kernel launched behind this one may start once every block has called this or ended.
FC_DEVICE void launch_dependents() { asm volatile("griddepcontrol.launch_dependents;"); }

}  // namespace fc
