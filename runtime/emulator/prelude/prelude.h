// Everything an emitted body may use, on the CPU. The counterpart of codegen/prelude/; where a file
// is plain C++ (types, the layout of shared tiles), it is that file.
#pragma once

#include "convert.h"
#include "cp_async.h"
#include "gather.h"
#include "language.h"
#include "ldmatrix.h"
#include "math.h"
#include "mbarrier.h"
#include "memory.h"
#include "mma_m16n8k16.h"
#include "quad.cuh"
#include "shared_tile.cuh"
#include "small_tanh.cuh"
#include "thread.h"
#include "tile_set.cuh"
#include "tma.h"
#include "types.cuh"
#include "warpgroup.h"
#include "wgmma.h"
#include "wmma_m16n16k16.h"
