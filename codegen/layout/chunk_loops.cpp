#include "codegen/layout/chunk_loops.h"

namespace flashcore {

std::vector<ChunkLoop> chunk_loops(const ir::Buffer& buffer) {
  std::vector<ChunkLoop> loops;
  const auto add = [&](int first_column, int width, int panels) {
    if (panels) loops.push_back({first_column, width, panels});
  };
  const int wide = buffer.columns / 64 * 64;
  add(0, 64, buffer.columns / 64);
  add(wide, 32, buffer.columns % 64 / 32);
  add(buffer.columns - 16, 16, buffer.columns % 32 / 16);
  return loops;
}

}  // namespace flashcore
