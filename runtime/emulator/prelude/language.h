// What CUDA adds to C++, for a host compiler.
#pragma once

#include "machine.h"

#define __global__
#define __grid_constant__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __device__ static
#define __forceinline__ inline

// Set once, before the first block runs.
[[maybe_unused]] static const FlashcoreMachine* fc_machine;
