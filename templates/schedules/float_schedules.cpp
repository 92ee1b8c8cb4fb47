// f32 takes twice the shared memory of 16-bit elements, and its products twice the instructions. So
// tiles are as large as shared memory and registers allow, which a rule counts: it knows no names
// of targets.
#include "templates/schedules/float_schedules.h"

#include <algorithm>

#include "templates/schedules/wide_schedules.h"

namespace flashcore {
namespace {

int padded(int dim) { return (dim + 15) / 16 * 16; }

/// A block of warps that make 16 or 32 rows each.
struct Candidate {
  int warps, rows_of_warp, cols, blocks;  ///< blocks that a multiprocessor holds at once
};

/// Warps of 32 rows read every key and value from shared memory for two instructions instead of
/// one. Two blocks hide each other's softmax; eight warps of one block do nearly as well.
constexpr Candidate candidates[] = {
    {4, 32, 64, 2}, {4, 32, 32, 2}, {4, 16, 64, 2}, {4, 16, 32, 2}, {8, 16, 64, 1},
    {8, 16, 32, 1}, {4, 16, 64, 1}, {4, 16, 32, 1}, {4, 16, 16, 1},
};

int shared_bytes(const AttentionSpec& spec, const Candidate& c, int stages) {
  const int d = padded(spec.head_dim), dv = padded(spec.value_dim());
  return size_of(spec.dtype) * (c.warps * c.rows_of_warp * d + stages * c.cols * (d + dv));
}

bool fits_in_shared(const AttentionSpec& spec, const Target& target, const Candidate& c,
                    int stages) {
  const int bytes = shared_bytes(spec, c, stages);
  return bytes <= target.shared_per_block &&
         c.blocks * (bytes + target.shared_reserved) <= target.shared_per_processor;
}

/// Sums, scores, and what is left for addresses, operands and the rows' maxima.
bool fits_in_registers(const AttentionSpec& spec, const Target& target, const Candidate& c) {
  constexpr int all = 65536, others = 60;
  const int lanes = 32, threads = c.warps * lanes;
  const int limit = std::min(target.registers_per_thread, all / (threads * c.blocks));
  return c.rows_of_warp * (padded(spec.value_dim()) + c.cols) / lanes + others <= limit;
}

}  // namespace

std::vector<Schedule> float_schedules(const AttentionSpec& spec, const Target& target) {
  std::vector<Schedule> schedules;
  if (is_wide(spec)) {
    schedules = wide_schedules(spec, target);
    for (Schedule& s : schedules) s.instruction = Instruction::mma_m16n8k8_tf32;
    return schedules;
  }
  for (const Candidate& c : candidates) {
    const bool last = &c == &candidates[std::size(candidates) - 1];
    if (!last && (!fits_in_shared(spec, target, c, 1) || !fits_in_registers(spec, target, c)))
      continue;
    Schedule s;
    s.instruction = Instruction::mma_m16n8k8_tf32;
    s.tiles = {{"rows", c.warps * c.rows_of_warp}, {"cols", c.cols}};
    s.warps_m = c.warps;
    s.stages = fits_in_shared(spec, target, c, 2) ? 2 : 1;
    s.blocks_per_processor = c.blocks;
    s.last_tiles_first = !spec.mask.is_full();
    if (!target.async_copy) s.copy = CopyInstruction::vector;
    schedules.push_back(std::move(s));
  }
  return schedules;
}

}  // namespace flashcore
