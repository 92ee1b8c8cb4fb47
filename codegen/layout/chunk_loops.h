// A tile in shared memory, cut as prelude/shared_tile.cuh cuts it: panels of 128 bytes a row, then
// one of 64 and one of 32.
#pragma once

#include <vector>

#include "dsl/ir/function.h"

namespace flashcore {

/// Neighbouring panels of one width.
struct ChunkLoop {
  int first_column, width, panels;
};

std::vector<ChunkLoop> chunk_loops(const ir::Buffer& buffer);

}  // namespace flashcore
