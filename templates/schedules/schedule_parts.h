// What lists of shipped schedules share: the instructions that a target has, and tiles of which a rule
// counts what a block of them needs.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "dsl/flashcore.h"

namespace flashcore {

inline int round_up(int size, int step = 16) { return (size + step - 1) / step * step; }

/// mma.sync with asynchronous copies where the target has them; otherwise wmma, with the operations
/// between products on rows in shared memory, and copies by loads and stores.
inline void choose_family(Schedule& schedule, const Target& target) {
  if (!target.mma_m16n8k16) {
    schedule.instruction = Instruction::wmma;
    schedule.softmax = Softmax::shared;
  }
  if (!target.async_copy) schedule.copy = CopyInstruction::vector;
}

/// Products of warpgroups, which divide the rows.
inline Schedule warpgroup_tiles(int rows, int cols) {
  Schedule s;
  s.instruction = Instruction::wgmma;
  s.copy = CopyInstruction::tma;
  s.tiles = {{"rows", rows}, {"cols", cols}};
  s.warps_m = rows / 16;
  return s;
}

struct BlockTiles {
  int rows, cols, warps_m, warps_n, stages, blocks;  ///< blocks that a multiprocessor holds at once

  [[nodiscard]] int threads() const { return 32 * warps_m * warps_n; }
  [[nodiscard]] bool fit_in_shared(const Target& target, int bytes) const {
    return bytes <= target.shared_per_block &&
           blocks * (bytes + target.shared_reserved) <= target.shared_per_processor;
  }
  [[nodiscard]] Schedule schedule(const AttentionSpec& spec) const {
    Schedule s;
    s.tiles = {{"rows", rows}, {"cols", cols}};
    s.warps_m = warps_m;
    s.warps_n = warps_n;
    s.stages = stages;
    s.blocks_per_processor = blocks;
    s.last_tiles_first = !spec.mask.is_full();
    return s;
  }
};

/// A schedule for each of the tiles that fit, in their order; where none does, for the last: `bytes_of`
/// and `registers_of` say what tiles take of a block's shared memory and of a thread's registers.
template <class BytesOf, class RegistersOf>
std::vector<Schedule> fitting_schedules(std::span<const BlockTiles> candidates,
                                        const AttentionSpec& spec, const Target& target,
                                        int most_registers, BytesOf bytes_of,
                                        RegistersOf registers_of) {
  std::vector<Schedule> schedules;
  for (const BlockTiles& tiles : candidates)
    if (tiles.fit_in_shared(target, bytes_of(tiles)) && registers_of(tiles) <= most_registers)
      schedules.push_back(tiles.schedule(spec));
  if (schedules.empty()) schedules.push_back(candidates.back().schedule(spec));
  return schedules;
}

}  // namespace flashcore
