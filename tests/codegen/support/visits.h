// Which tiles of its keys a masked loop visits, and on which of them it applies its mask: read off
// the program after a pass, by evaluating it with two more carried values.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "dsl/flashcore.h"
#include "dsl/schedule.h"

namespace flashcore {

/// What a condition is made from.
struct Positions {
  Tile row, col, row_count, col_count;
  std::vector<Tensor> tables;  ///< i32, one dimension, to gather from
};

/// The largest visible element of every row, with a mask of its own. Tables are named "t0", "t1",
/// ...
Program masked_maximum(const std::function<Tile(const Positions&)>& visible, int tables = 0);

struct Visits {
  std::uint64_t visited = 0, masked = 0;  ///< a bit a tile
};

/// Evaluates `program` as it is after `pass`, and returns the visits of every block of rows. There
/// are at most 50 tiles.
std::vector<Visits> visits_of(const Program& program, const Schedule& schedule,
                              std::string_view pass, int rows, int cols,
                              const std::vector<std::vector<std::int32_t>>& tables = {});

}  // namespace flashcore
