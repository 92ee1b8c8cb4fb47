// The parts of a query lie in shared memory for the whole loop, those of a tile of keys and then of
// values in one place after the other. What a product makes of a tile is summed from zero and then
// added to the output, in f32 that is rounded to the nearest: the tensor core cuts off what a sum
// does not hold, which over thousands of keys would show. So a thread holds the output twice.
//
// Warps of 32 rows read every key and value for two instructions instead of one. Where the output
// of 16 rows is too wide for one warp, two divide its columns.
#include <algorithm>
#include <iterator>

#include "templates/schedules/schedule_lists.h"
#include "templates/schedules/schedule_parts.h"
#include "templates/split_products.h"

namespace flashcore {
namespace {

constexpr BlockTiles candidates[] = {
    {128, 32, 4, 1, 1, 2}, {128, 32, 4, 1, 1, 1}, {128, 64, 8, 1, 1, 1}, {128, 32, 8, 1, 1, 1},
    {64, 32, 4, 1, 1, 1},  {64, 32, 4, 2, 1, 1},  {32, 32, 2, 2, 1, 1},  {16, 32, 1, 2, 1, 1},
};

}  // namespace

std::vector<Schedule> split_schedules(const AttentionSpec& spec, const Target& target) {
  constexpr int parts = std::size(part_names);
  constexpr int most_registers = 184;  // the others hold addresses, operands and row maxima
  const auto dv = [&](const BlockTiles& tiles) {
    return round_up(spec.value_dim(), 16 * tiles.warps_n);
  };
  // Buffers begin at multiples of 1024.
  const auto bytes_of = [&](const BlockTiles& tiles) {
    const auto buffers = [](int rows, int columns) {
      return parts * round_up(2 * rows * columns, 1024);
    };
    const int d = round_up(spec.head_dim),
              weights = tiles.warps_n > 1 ? buffers(tiles.rows, tiles.cols) + 1024 : 0;
    return buffers(tiles.rows, d) + buffers(tiles.cols, std::max(d, dv(tiles))) + weights;
  };
  // The output, what a tile adds to it, and the scores or their parts.
  const auto registers_of = [&](const BlockTiles& tiles) {
    return tiles.rows * (2 * dv(tiles) + tiles.cols * parts / 2) / tiles.threads();
  };
  std::vector<Schedule> schedules =
      fitting_schedules(candidates, spec, target, most_registers, bytes_of, registers_of);
  for (Schedule& s : schedules) {
    s.product_split = ProductSplit::columns;
    if (!target.async_copy) s.copy = CopyInstruction::vector;
  }
  return schedules;
}

}  // namespace flashcore
