// A tile in shared memory, cut as prelude/shared_tile.cuh cuts it: panels of 128 bytes a row, then
// one of 64 and one of 32. A vector is one line.
#pragma once

#include <vector>

#include "dsl/ir/function.h"

namespace flashcore {

/// Neighbouring panels of one width.
struct ChunkLoop {
  int first_column, width, panels;
};

inline std::vector<ChunkLoop> chunk_loops(const ir::Buffer& buffer) {
  if (buffer.is_vector()) return {{0, buffer.columns, 1}};
  std::vector<ChunkLoop> loops;
  const auto add = [&](int first_column, int width, int panels) {
    if (panels) loops.push_back({first_column, width, panels});
  };
  const int line = 128 / size_of(buffer.dtype), wide = buffer.columns / line * line;
  add(0, line, buffer.columns / line);
  add(wide, line / 2, buffer.columns % line / (line / 2));
  add(buffer.columns - line / 4, line / 4, buffer.columns % (line / 2) / (line / 4));
  return loops;
}

}  // namespace flashcore
