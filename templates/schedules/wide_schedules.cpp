// 64 query rows of 512 output columns are half of a multiprocessor's registers. Eight warps hold
// them as 2 x 4: each has 32 rows and a quarter of the columns, so that a fragment of the values
// that is read from shared memory serves two blocks of 16 rows. The same warps divide the key
// columns of the scores; row maxima and sums are combined in shared memory, and the probabilities
// go through it, because every warp multiplies all of them.
#include "templates/schedules/wide_schedules.h"

#include <algorithm>

namespace flashcore {
namespace {

int padded(int dim, int step = 16) { return (dim + step - 1) / step * step; }

struct Tiles {
  int rows, cols, warps_m, warps_n;
};

// Rows first: what a block reads of keys and values it reads for all of its rows.
constexpr Tiles candidates[] = {
    {64, 64, 2, 4}, {64, 64, 4, 2}, {64, 32, 4, 2}, {32, 64, 2, 4},
    {32, 32, 2, 2}, {32, 16, 2, 1}, {16, 32, 1, 2},
};

/// Bytes of a block: the query, one tile of keys and one of values, the probabilities, and a row
/// maximum of every warp along the columns. Buffers begin at multiples of 1024.
int bytes_of(const AttentionSpec& spec, const Tiles& tiles) {
  constexpr int period = 1024;
  const int d = padded(spec.head_dim), dv = padded(spec.value_dim(), 16 * tiles.warps_n);
  const int size = size_of(spec.dtype);
  const auto buffer = [](int bytes) { return padded(bytes, period); };
  return buffer(size * tiles.rows * d) + buffer(size * tiles.cols * d) +
         buffer(size * tiles.cols * dv) + buffer(size * tiles.rows * tiles.cols) +
         4 * tiles.rows * tiles.warps_n;
}

/// Registers of a thread that hold the output and the scores.
int registers_of(const AttentionSpec& spec, const Tiles& tiles) {
  const int dv = padded(spec.value_dim(), 16 * tiles.warps_n);
  return tiles.rows * (dv + tiles.cols) / (32 * tiles.warps_m * tiles.warps_n);
}

Schedule schedule_of(const AttentionSpec& spec, const Tiles& tiles) {
  Schedule s;
  s.tiles = {{"rows", tiles.rows}, {"cols", tiles.cols}};
  s.warps_m = tiles.warps_m;
  s.warps_n = tiles.warps_n;
  s.product_split = ProductSplit::columns;
  s.stages = 1;
  s.last_tiles_first = !spec.mask.is_full();
  return s;
}

}  // namespace

bool is_wide(const AttentionSpec& spec) { return std::max(spec.head_dim, spec.value_dim()) > 256; }

std::vector<Schedule> wide_schedules(const AttentionSpec& spec, const Target& target) {
  constexpr int most_registers = 176;  // the others hold addresses, operands and row maxima
  std::vector<Schedule> schedules;
  for (const Tiles& tiles : candidates)
    if (bytes_of(spec, tiles) <= target.shared_per_block &&
        registers_of(spec, tiles) <= most_registers)
      schedules.push_back(schedule_of(spec, tiles));
  if (schedules.empty()) schedules.push_back(schedule_of(spec, std::end(candidates)[-1]));
  return schedules;
}

}  // namespace flashcore
