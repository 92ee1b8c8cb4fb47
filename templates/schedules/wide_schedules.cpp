// 64 query rows of 512 output columns are half of a multiprocessor's registers. Eight warps hold
// them as 2 x 4: each has 32 rows and a quarter of the columns, so that a fragment of the values
// that is read from shared memory serves two blocks of 16 rows. The same warps divide the key
// columns of the scores; row maxima and sums are combined in shared memory, and the probabilities
// go through it, because every warp multiplies all of them.
#include <algorithm>

#include "templates/schedules/schedule_lists.h"
#include "templates/schedules/schedule_parts.h"

namespace flashcore {
namespace {

// Rows first: what a block reads of keys and values it reads for all of its rows.
constexpr BlockTiles candidates[] = {
    {64, 64, 2, 4, 1, 1}, {64, 64, 4, 2, 1, 1}, {64, 32, 4, 2, 1, 1}, {32, 64, 2, 4, 1, 1},
    {32, 32, 2, 2, 1, 1}, {32, 16, 2, 1, 1, 1}, {16, 32, 1, 2, 1, 1},
};

}  // namespace

bool is_wide(const AttentionSpec& spec) { return std::max(spec.head_dim, spec.value_dim()) > 256; }

std::vector<Schedule> wide_schedules(const AttentionSpec& spec, const Target& target) {
  constexpr int most_registers = 176;  // the others hold addresses, operands and row maxima
  const int d = round_up(spec.head_dim), size = size_of(spec.dtype);
  const auto dv = [&](const BlockTiles& tiles) {
    return round_up(spec.value_dim(), 16 * tiles.warps_n);
  };
  // The query, one tile of keys and one of values, the probabilities, and a row maximum of every warp
  // along the columns. Buffers begin at multiples of 1024.
  const auto bytes_of = [&](const BlockTiles& tiles) {
    const auto buffer = [&](int rows, int columns) {
      return round_up(size * rows * columns, 1024);
    };
    return buffer(tiles.rows, d) + buffer(tiles.cols, d) + buffer(tiles.cols, dv(tiles)) +
           buffer(tiles.rows, tiles.cols) + 4 * tiles.rows * tiles.warps_n;
  };
  // The output and the scores.
  const auto registers_of = [&](const BlockTiles& tiles) {
    return tiles.rows * (dv(tiles) + tiles.cols) / tiles.threads();
  };
  std::vector<Schedule> schedules =
      fitting_schedules(candidates, spec, target, most_registers, bytes_of, registers_of);
  for (Schedule& s : schedules) s.product_split = ProductSplit::columns;
  return schedules;
}

}  // namespace flashcore
