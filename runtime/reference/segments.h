// Tiles of segments that lie one behind the other, by their numbers.
#pragma once

#include <cstdint>

#include "runtime/tensor.h"

namespace flashcore {

struct SegmentTile {
  std::int64_t segment = 0;
  std::int64_t tile = 0;  ///< of those of the segment; one behind its last for a number too many
  bool exists = false;    ///< whether the number is none too many
};

/// What the op find_segment computes (codegen/prelude/segments.cuh says how tiles are numbered), here by a
/// search from the front. `starts` are `count` + 1 numbers, `tile` the rows of a tile.
SegmentTile find_segment(const TensorView& starts, std::int64_t count, std::int64_t number,
                         std::int64_t tile, bool descending);

/// What the op searchsorted computes: of the first `count` numbers those that are at most `number`, counted.
std::int64_t searchsorted(const TensorView& numbers, std::int64_t count, std::int64_t number);

}  // namespace flashcore
