// The parts of a query lie in shared memory for the whole loop, those of a tile of keys and then of
// values in one place after the other. What a product makes of a tile is summed from zero and then
// added to the output, in f32 that is rounded to the nearest: the tensor core cuts off what a sum
// does not hold, which over thousands of keys would show. So a thread holds the output twice.
//
// Warps of 32 rows read every key and value for two instructions instead of one. Where the output
// of 16 rows is too wide for one warp, two divide its columns.
#include "templates/schedules/split_schedules.h"

#include <algorithm>

namespace flashcore {
namespace {

constexpr int parts = 3;

int padded(int size, int step) { return (size + step - 1) / step * step; }

struct Tiles {
  int rows, cols, warps_m, warps_n, blocks;  ///< blocks that a multiprocessor holds at once
};

constexpr Tiles candidates[] = {
    {128, 32, 4, 1, 2}, {128, 32, 4, 1, 1}, {128, 64, 8, 1, 1}, {128, 32, 8, 1, 1},
    {64, 32, 4, 1, 1},  {64, 32, 4, 2, 1},  {32, 32, 2, 2, 1},  {16, 32, 1, 2, 1},
};

/// Bytes of a block. Buffers begin at multiples of 1024.
int bytes_of(const AttentionSpec& spec, const Tiles& tiles) {
  const int d = padded(spec.head_dim, 16), dv = padded(spec.value_dim(), 16 * tiles.warps_n);
  const auto buffers = [](int rows, int columns) {
    return parts * padded(2 * rows * columns, 1024);
  };
  const int weights = tiles.warps_n > 1 ? buffers(tiles.rows, tiles.cols) + 1024 : 0;
  return buffers(tiles.rows, d) + buffers(tiles.cols, std::max(d, dv)) + weights;
}

/// Registers of a thread that hold the output, what a tile adds to it, and the scores or their
/// parts.
int registers_of(const AttentionSpec& spec, const Tiles& tiles) {
  const int threads = 32 * tiles.warps_m * tiles.warps_n;
  const int dv = padded(spec.value_dim(), 16 * tiles.warps_n);
  return tiles.rows * (2 * dv + tiles.cols * parts / 2) / threads;
}

bool fits(const AttentionSpec& spec, const Target& target, const Tiles& tiles) {
  constexpr int most_registers = 184;  // the others hold addresses, operands and row maxima
  const int bytes = bytes_of(spec, tiles);
  return bytes <= target.shared_per_block &&
         tiles.blocks * (bytes + target.shared_reserved) <= target.shared_per_processor &&
         registers_of(spec, tiles) <= most_registers;
}

Schedule schedule_of(const AttentionSpec& spec, const Target& target, const Tiles& tiles) {
  Schedule s;
  s.tiles = {{"rows", tiles.rows}, {"cols", tiles.cols}};
  s.warps_m = tiles.warps_m;
  s.warps_n = tiles.warps_n;
  s.product_split = ProductSplit::columns;
  s.stages = 1;
  s.blocks_per_processor = tiles.blocks;
  s.last_tiles_first = !spec.mask.is_full();
  if (!target.async_copy) s.copy = CopyInstruction::vector;
  return s;
}

}  // namespace

std::vector<Schedule> split_schedules(const AttentionSpec& spec, const Target& target) {
  std::vector<Schedule> schedules;
  for (const Tiles& tiles : candidates)
    if (fits(spec, target, tiles)) schedules.push_back(schedule_of(spec, target, tiles));
  if (schedules.empty()) schedules.push_back(schedule_of(spec, target, std::end(candidates)[-1]));
  return schedules;
}

}  // namespace flashcore
