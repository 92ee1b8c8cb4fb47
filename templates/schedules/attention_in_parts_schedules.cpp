// The parts of the query lie in shared memory for the whole loop, beside those of one tile of keys
// and of values, or of two. A product of parts waits for nothing but the one in front of it, and
// warpgroups of one block hide each other's softmax.
#include <iterator>

#include "templates/attention_in_parts.h"
#include "templates/schedules/schedule_parts.h"
#include "templates/split_products.h"

namespace flashcore {
namespace {

constexpr BlockTiles candidates[] = {
    {128, 96, 8, 1, 1, 1}, {128, 64, 8, 1, 2, 1}, {128, 64, 8, 1, 1, 1},
    {128, 32, 8, 1, 1, 1}, {64, 32, 4, 1, 1, 1},  {64, 16, 4, 1, 1, 1},
};

}  // namespace

std::vector<std::vector<Schedule>> attention_in_parts_schedules(const AttentionSpec& spec,
                                                                const Target& target) {
  constexpr int parts = std::size(part_names);
  constexpr int barriers = 512, most_registers = 216;  // the others hold addresses and row maxima
  const int d = round_up(spec.head_dim), dv = round_up(value_columns(spec)),
            halves = halves_values(spec) ? 2 : 1;
  const auto bytes_of = [&](const BlockTiles& tiles) {
    const auto buffers = [](int rows, int columns) {
      return parts * round_up(2 * rows * columns, 1024);
    };
    return buffers(tiles.rows, d) + barriers +
           tiles.stages * (buffers(tiles.cols, d) + halves * buffers(tiles.cols, dv));
  };
  // The output, what a tile adds to it, and the scores or their parts.
  const auto registers_of = [&](const BlockTiles& tiles) {
    return ((halves + 1) * dv + tiles.cols * parts / 2) / 2;
  };
  std::vector<Schedule> attention =
      fitting_schedules(candidates, spec, target, most_registers, bytes_of, registers_of);
  for (Schedule& s : attention) {
    s.instruction = Instruction::wgmma;
    s.copy = CopyInstruction::tma;
    // The halves of a product with the values take turns in the same registers.
    s.overlap_products = !halves_values(spec);
  }
  Schedule split;
  split.tiles = {{"rows", 32}};
  return {{split}, {split}, {split}, attention};
}

}  // namespace flashcore
