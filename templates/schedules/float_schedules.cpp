// f32 takes twice the shared memory of 16-bit elements, and its products twice the instructions. So
// tiles are as large as shared memory and registers allow, which a rule counts: it knows no names
// of targets.
#include <algorithm>
#include <iterator>
#include <utility>

#include "templates/schedules/schedule_lists.h"
#include "templates/schedules/schedule_parts.h"

namespace flashcore {
namespace {

/// Warps of 32 rows read every key and value from shared memory for two instructions instead of
/// one. Two blocks hide each other's softmax; eight warps of one block do nearly as well.
constexpr BlockTiles candidates[] = {
    {128, 64, 4, 1, 1, 2}, {128, 32, 4, 1, 1, 2}, {64, 64, 4, 1, 1, 2},
    {64, 32, 4, 1, 1, 2},  {128, 64, 8, 1, 1, 1}, {128, 32, 8, 1, 1, 1},
    {64, 64, 4, 1, 1, 1},  {64, 32, 4, 1, 1, 1},  {64, 16, 4, 1, 1, 1},
};

/// Sums, scores, and what is left for addresses, operands and the rows' maxima.
bool fit_in_registers(const AttentionSpec& spec, const Target& target, const BlockTiles& tiles) {
  constexpr int all = 65536, others = 60;
  const int limit = std::min(target.registers_per_thread, all / (tiles.threads() * tiles.blocks));
  return tiles.rows * (round_up(spec.value_dim()) + tiles.cols) / tiles.threads() + others <= limit;
}

}  // namespace

std::vector<Schedule> float_schedules(const AttentionSpec& spec, const Target& target) {
  std::vector<Schedule> schedules;
  if (is_wide(spec)) {
    schedules = wide_schedules(spec, target);
    for (Schedule& s : schedules) s.instruction = Instruction::mma_m16n8k8_tf32;
    return schedules;
  }
  const int d = round_up(spec.head_dim), dv = round_up(spec.value_dim());
  for (const BlockTiles& tiles : candidates) {
    const auto fits = [&](int stages) {
      return tiles.fit_in_shared(
          target, size_of(spec.dtype) * (tiles.rows * d + stages * tiles.cols * (d + dv)));
    };
    const bool last = &tiles == std::end(candidates) - 1;
    if (!last && (!fits(1) || !fit_in_registers(spec, target, tiles))) continue;
    Schedule s = tiles.schedule(spec);
    s.instruction = Instruction::mma_m16n8k8_tf32;
    s.stages = fits(2) ? 2 : 1;
    if (!target.async_copy) s.copy = CopyInstruction::vector;
    schedules.push_back(std::move(s));
  }
  return schedules;
}

}  // namespace flashcore
