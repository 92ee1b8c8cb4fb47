// The parts of the query lie in shared memory for the whole loop, beside those of one tile of keys
// and of values, or of two. A product of parts waits for nothing but the one in front of it, and
// warpgroups of one block hide each other's softmax.
#include <iterator>

#include "templates/attention_in_parts.h"
#include "templates/split_products.h"

namespace flashcore {
namespace {

constexpr int parts = std::size(part_names);

int padded(int size, int step) { return (size + step - 1) / step * step; }

struct Tiles {
  int rows, cols, stages;
};

constexpr Tiles candidates[] = {
    {128, 96, 1}, {128, 64, 2}, {128, 64, 1}, {128, 32, 1}, {64, 32, 1}, {64, 16, 1},
};

int bytes_of(const AttentionSpec& spec, const Tiles& tiles) {
  const int d = padded(spec.head_dim, 16), halves = halves_values(spec) ? 2 : 1;
  const int dv = padded(value_columns(spec), 16);
  const auto buffers = [](int rows, int columns) {
    return parts * padded(2 * rows * columns, 1024);
  };
  return buffers(tiles.rows, d) +
         tiles.stages * (buffers(tiles.cols, d) + halves * buffers(tiles.cols, dv));
}

/// Registers of a consumer thread that hold the output, what a tile adds to it, and the scores or
/// their parts.
int registers_of(const AttentionSpec& spec, const Tiles& tiles) {
  const int halves = halves_values(spec) ? 2 : 1;
  const int dv = padded(value_columns(spec), 16);
  return ((halves + 1) * dv + tiles.cols * parts / 2) / 2;
}

Schedule schedule_of(const AttentionSpec& spec, const Tiles& tiles) {
  Schedule s;
  s.instruction = Instruction::wgmma;
  s.copy = CopyInstruction::tma;
  s.tiles = {{"rows", tiles.rows}, {"cols", tiles.cols}};
  s.warps_m = tiles.rows / 16;
  s.stages = tiles.stages;
  // The halves of a product with the values take turns in the same registers.
  s.overlap_products = !halves_values(spec);
  s.last_tiles_first = !spec.mask.is_full();
  return s;
}

}  // namespace

std::vector<std::vector<Schedule>> attention_in_parts_schedules(const AttentionSpec& spec,
                                                                const Target& target) {
  constexpr int barriers = 512, most_registers = 216;  // the others hold addresses and row maxima
  std::vector<Schedule> attention;
  for (const Tiles& tiles : candidates)
    if (bytes_of(spec, tiles) + barriers <= target.shared_per_block &&
        registers_of(spec, tiles) <= most_registers)
      attention.push_back(schedule_of(spec, tiles));
  Schedule split;
  split.tiles = {{"rows", 32}};
  return {{split}, {split}, {split}, attention};
}

}  // namespace flashcore
