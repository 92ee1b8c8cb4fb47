// What scans of a block note of tiles: which of them have visible keys, and which nothing else.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "dsl/ir/function.h"

namespace flashcore {

struct FoundTile {
  bool visible = true, everywhere = false;
};

class FoundTiles {
 public:
  explicit FoundTiles(const ir::Function& f) : f_(f), found_(f.buffers.size()) {}

  /// What a scan found, in the order of the tiles.
  void note(ir::BufferId buffer, std::vector<FoundTile> tiles) {
    found_[buffer.index] = std::move(tiles);
  }

  /// What the scan into the buffer of `op` noted of a tile. Its words hold eight each; of the tiles beyond
  /// them nothing is known.
  [[nodiscard]] FoundTile at(const ir::Op& op, std::int64_t tile) const {
    const std::vector<FoundTile>& tiles = found_[op.buffer.index];
    if (tile < 0 || tile >= static_cast<std::int64_t>(f_[op.buffer].columns) * 8) return {};
    if (tile >= static_cast<std::int64_t>(tiles.size())) return {false, false};
    return tiles[static_cast<std::size_t>(tile)];
  }

  /// The next tile with visible keys behind `tile`, in the direction of `op`, or its bound.
  [[nodiscard]] std::int64_t next(const ir::Op& op, std::int64_t tile, std::int64_t bound) const {
    if (op.descending) {
      for (--tile; tile >= bound && !at(op, tile).visible;) --tile;
    } else {
      for (++tile; tile < bound && !at(op, tile).visible;) ++tile;
    }
    return tile;
  }

 private:
  const ir::Function& f_;
  std::vector<std::vector<FoundTile>> found_;  ///< by buffer
};

}  // namespace flashcore
