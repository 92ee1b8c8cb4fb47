// Whether the rows of a tile at computed positions lie in one box of the tensor, which is what the
// copy engine takes, or in several. Keys in pages do where a page has a whole number of tiles, or a
// tile a whole number of pages:
//
//   k[gather table[%batch, div (index cols), 64], mod (index cols), 64, %head, d]
//
// In a tile of 64 keys, or 32, the page is the same for all of them, and the places in it follow each
// other. A tile of 128 keys is two boxes of 64.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "dsl/ir/function.h"

namespace flashcore {

/// The numbers of a tile along an axis: that of the first element, which is a multiple of
/// `multiple`, and a further `step` for every element behind it.
struct NumberRun {
  std::int64_t step = 0, multiple = 1;
};

/// Derives them from the text of i32 values, for tiles of `tile` elements along an axis.
class NumberRuns {
 public:
  NumberRuns(const ir::Function& f, ir::AxisId axis, std::int64_t tile)
      : f_(f), axis_(axis), tile_(tile) {}

  /// None where the numbers are not known to follow such a rule.
  std::optional<NumberRun> of(ir::ValueId value);

 private:
  std::optional<NumberRun> derive(ir::ValueId value);
  std::optional<NumberRun> divide(const ir::Op& op);

  const ir::Function& f_;
  const ir::AxisId axis_;
  const std::int64_t tile_;
  std::map<ir::ValueId, std::optional<NumberRun>> known_;
};

/// The boxes of equally many rows that make up a tile.
struct TileBoxes {
  int rows = 0;          ///< of each; 0 where there are none
  std::string why_none;  ///< empty where there are some
};

/// The largest boxes in which the rows of a load at computed positions lie, where its tiles have
/// `tile` rows, of which each of `blocks` blocks loads its share.
TileBoxes boxes_of_tile(const ir::Function& f, const ir::Op& load, int tile, int blocks = 1);

}  // namespace flashcore
