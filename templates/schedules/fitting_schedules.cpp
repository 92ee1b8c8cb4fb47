// Lists of schedules whose tiles are as large as shared memory and registers allow: for f32, which takes
// twice the shared memory of 16-bit elements and more instructions, and for wide heads, whose output
// fills the registers. Rules count what a block takes; they know no names of targets.
#include <algorithm>
#include <iterator>
#include <span>

#include "templates/attention_in_parts.h"
#include "templates/schedules/schedule_lists.h"
#include "templates/schedules/schedule_parts.h"
#include "templates/split_products.h"

namespace flashcore {
namespace {

struct BlockTiles {
  int rows, cols, warps_m, warps_n, stages, blocks;  ///< blocks that a multiprocessor holds at once

  [[nodiscard]] int threads() const { return 32 * warps_m * warps_n; }
};

/// Warps of 32 rows read every key and value from shared memory for two instructions instead of
/// one. Two blocks hide each other's softmax; eight warps of one block do nearly as well.
constexpr BlockTiles tf32_tiles[] = {
    {128, 64, 4, 1, 1, 2}, {128, 32, 4, 1, 1, 2}, {64, 64, 4, 1, 1, 2},
    {64, 32, 4, 1, 1, 2},  {128, 64, 8, 1, 1, 1}, {128, 32, 8, 1, 1, 1},
    {64, 64, 4, 1, 1, 1},  {64, 32, 4, 1, 1, 1},  {64, 16, 4, 1, 1, 1},
};
/// Where the output of 16 rows is too wide for one warp, two divide its columns.
constexpr BlockTiles split_tiles[] = {
    {128, 32, 4, 1, 1, 2}, {128, 32, 4, 1, 1, 1}, {128, 64, 8, 1, 1, 1}, {128, 32, 8, 1, 1, 1},
    {64, 32, 4, 1, 1, 1},  {64, 32, 4, 2, 1, 1},  {32, 32, 2, 2, 1, 1},  {16, 32, 1, 2, 1, 1},
};
/// A product of parts waits for nothing but the one in front of it, and warpgroups of one block hide
/// each other's softmax.
constexpr BlockTiles tiles_in_parts[] = {
    {128, 96, 8, 1, 1, 1}, {128, 64, 8, 1, 2, 1}, {128, 64, 8, 1, 1, 1},
    {128, 32, 8, 1, 1, 1}, {64, 32, 4, 1, 1, 1},  {64, 16, 4, 1, 1, 1},
};
/// Rows first: what a block reads of keys and values it reads for all of its rows. 64 query rows of
/// 512 output columns are half of a multiprocessor's registers. Eight warps hold them as 2 x 4: each
/// has 32 rows and a quarter of the columns, so that a fragment of the values that is read from shared
/// memory serves two blocks of 16 rows. The same warps divide the key columns of the scores.
constexpr BlockTiles wide_tiles[] = {
    {64, 64, 2, 4, 1, 1}, {64, 64, 4, 2, 1, 1}, {64, 32, 4, 2, 1, 1}, {32, 64, 2, 4, 1, 1},
    {32, 32, 2, 2, 1, 1}, {32, 16, 2, 1, 1, 1}, {16, 32, 1, 2, 1, 1},
};

Schedule schedule_of(const BlockTiles& tiles, const AttentionSpec& spec) {
  Schedule s;
  s.tiles = {{"rows", tiles.rows}, {"cols", tiles.cols}};
  s.warps_m = tiles.warps_m;
  s.warps_n = tiles.warps_n;
  s.stages = tiles.stages;
  s.blocks_per_processor = tiles.blocks;
  s.last_tiles_first = !spec.mask.is_full();
  return s;
}

/// A schedule for each of the tiles that fit, in their order; where none does, for the last.
template <class Fits>
std::vector<Schedule> fitting_schedules(std::span<const BlockTiles> candidates,
                                        const AttentionSpec& spec, const Fits& fits) {
  std::vector<Schedule> schedules;
  for (const BlockTiles& tiles : candidates)
    if (fits(tiles)) schedules.push_back(schedule_of(tiles, spec));
  if (schedules.empty()) schedules.push_back(schedule_of(candidates.back(), spec));
  return schedules;
}

/// Buffers begin at multiples of 1024 bytes.
int buffer(int size, int rows, int columns) { return round_up(size * rows * columns, 1024); }

constexpr int parts = std::size(part_names);
int buffers_of_parts(int rows, int columns) { return parts * buffer(2, rows, columns); }

/// The columns of values, which the warps along them divide.
int divided_columns(const AttentionSpec& spec, const BlockTiles& tiles) {
  return round_up(spec.value_dim(), 16 * tiles.warps_n);
}

/// Of heads that are not wide; with a second stage where there is room for it.
std::vector<Schedule> tf32_schedules(const AttentionSpec& spec, const Target& target) {
  constexpr int all_registers = 65536, others = 60;  // for addresses, operands and row maxima
  const int d = round_up(spec.head_dim), dv = round_up(spec.value_dim());
  const auto bytes_of = [&](int rows, int cols, int stages) {
    return 4 * (rows * d + stages * cols * (d + dv));
  };
  const auto fits = [&](const BlockTiles& tiles) {
    // The output and the scores.
    const int registers = tiles.rows * (dv + tiles.cols) / tiles.threads() + others;
    return registers <= std::min(target.registers_per_thread,
                                 all_registers / (tiles.threads() * tiles.blocks)) &&
           fit_in_shared(target, tiles.blocks, bytes_of(tiles.rows, tiles.cols, 1));
  };
  std::vector<Schedule> schedules = fitting_schedules(tf32_tiles, spec, fits);
  for (Schedule& s : schedules) {
    const int bytes = bytes_of(s.tiles["rows"], s.tiles["cols"], 2);
    s.stages = fit_in_shared(target, s.blocks_per_processor, bytes) ? 2 : 1;
    if (!target.async_copy) s.copy = CopyInstruction::vector;
  }
  return schedules;
}

}  // namespace

bool is_wide(const AttentionSpec& spec) { return widest(spec) > 256; }

std::vector<Schedule> wide_schedules(const AttentionSpec& spec, const Target& target) {
  constexpr int most_registers = 176;  // the others hold addresses, operands and row maxima
  const int d = round_up(spec.head_dim), size = size_of(spec.dtype);
  const auto fits = [&](const BlockTiles& tiles) {
    const int dv = divided_columns(spec, tiles);
    // The query, one tile of keys and one of values, the probabilities, which go through shared memory
    // because every warp multiplies all of them, and a row maximum of every warp along the columns.
    const int bytes = buffer(size, tiles.rows, d) + buffer(size, tiles.cols, d) +
                      buffer(size, tiles.cols, dv) + buffer(size, tiles.rows, tiles.cols) +
                      4 * tiles.rows * tiles.warps_n;
    // The output and the scores.
    const int registers = tiles.rows * (dv + tiles.cols) / tiles.threads();
    return registers <= most_registers && fit_in_shared(target, tiles.blocks, bytes);
  };
  std::vector<Schedule> schedules = fitting_schedules(wide_tiles, spec, fits);
  for (Schedule& s : schedules) s.product_split = ProductSplit::columns;
  return schedules;
}

std::vector<Schedule> float_schedules(const AttentionSpec& spec, const Target& target) {
  std::vector<Schedule> schedules =
      is_wide(spec) ? wide_schedules(spec, target) : tf32_schedules(spec, target);
  for (Schedule& s : schedules) s.instruction = Instruction::mma_m16n8k8_tf32;
  return schedules;
}

// The parts of a query lie in shared memory for the whole loop, those of a tile of keys and then of
// values in one place after the other. What a product makes of a tile is summed from zero and then
// added to the output, in f32 that is rounded to the nearest: the tensor core cuts off what a sum
// does not hold, which over thousands of keys would show. So a thread holds the output twice.
std::vector<Schedule> split_schedules(const AttentionSpec& spec, const Target& target) {
  constexpr int most_registers = 184;  // the others hold addresses, operands and row maxima
  const int d = round_up(spec.head_dim);
  const auto fits = [&](const BlockTiles& tiles) {
    const int dv = divided_columns(spec, tiles);
    const int weights = tiles.warps_n > 1 ? buffers_of_parts(tiles.rows, tiles.cols) + 1024 : 0;
    const int bytes =
        buffers_of_parts(tiles.rows, d) + buffers_of_parts(tiles.cols, std::max(d, dv)) + weights;
    // The output, what a tile adds to it, and the scores or their parts.
    const int registers = tiles.rows * (2 * dv + tiles.cols * parts / 2) / tiles.threads();
    return registers <= most_registers && fit_in_shared(target, tiles.blocks, bytes);
  };
  std::vector<Schedule> schedules = fitting_schedules(split_tiles, spec, fits);
  for (Schedule& s : schedules) {
    s.product_split = ProductSplit::columns;
    if (!target.async_copy) s.copy = CopyInstruction::vector;
  }
  return schedules;
}

// The parts of the query lie in shared memory for the whole loop, beside those of one tile of keys
// and of values, or of two.
std::vector<std::vector<Schedule>> attention_in_parts_schedules(const AttentionSpec& spec,
                                                                const Target& target) {
  constexpr int barriers = 512, most_registers = 216;  // the others hold addresses and row maxima
  const int d = round_up(spec.head_dim), dv = round_up(value_columns(spec)),
            halves = halves_values(spec) ? 2 : 1;
  const auto fits = [&](const BlockTiles& tiles) {
    const int bytes = buffers_of_parts(tiles.rows, d) + barriers +
                      tiles.stages * (buffers_of_parts(tiles.cols, d) +
                                      halves * buffers_of_parts(tiles.cols, dv));
    // The output, what a tile adds to it, and the scores or their parts.
    const int registers = ((halves + 1) * dv + tiles.cols * parts / 2) / 2;
    return registers <= most_registers && fit_in_shared(target, tiles.blocks, bytes);
  };
  std::vector<Schedule> attention = fitting_schedules(tiles_in_parts, spec, fits);
  for (Schedule& s : attention) {
    s.instruction = Instruction::wgmma;
    s.copy = CopyInstruction::tma;
    // The halves of a product with the values take turns in the same registers.
    s.overlap_products = !halves_values(spec);
  }
  const Schedule split{.tiles = {{"rows", 32}}};
  return {{split}, {split}, {split}, attention};
}

}  // namespace flashcore
