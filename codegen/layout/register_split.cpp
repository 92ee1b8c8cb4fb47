#include "codegen/layout/register_split.h"

#include <algorithm>
#include <cstdint>

namespace flashcore {
namespace {

constexpr int step = 8, group = 128;

}  // namespace

int registers_at_start(int threads, int blocks_per_processor) {
  constexpr std::int64_t registers = 65536;
  const std::int64_t resident = std::int64_t{threads} * blocks_per_processor;
  return static_cast<int>(
      std::min<std::int64_t>(255, registers / std::max<std::int64_t>(1, resident) / step * step));
}

RegisterSplit register_split(const Schedule& schedule) {
  const int consumers = schedule.consumer_threads() / group;
  if (schedule.copy != CopyInstruction::tma || !schedule.producer || consumers < 1) return {};
  constexpr int least = 24, most = 240;
  const int fair = registers_at_start(schedule.threads(), schedule.blocks_per_processor);
  const int total = fair * (consumers + 1);
  RegisterSplit split;
  if (fair >= most) return split;
  // A producer that draws tiles for a cluster computes the bounds of two blocks. The second of two producers is
  // handed where its tile lies, and spills with fewer registers.
  const bool draws_for_cluster =
      schedule.multicast_blocks > 1 && schedule.tile_scheduler == PersistentScheduler::dynamic;
  const bool has_two_warps = schedule.producer_warps > 1 && consumers < 3;
  split.producer = draws_for_cluster || has_two_warps ? 40 : consumers == 3 ? 32 : least;
  split.consumer = std::min(most, (total - split.producer) / consumers / step * step);
  return split;
}

int registers_of_block(const Schedule& schedule, const RegisterSplit& split) {
  return group * split.producer + schedule.consumer_threads() * split.consumer;
}

}  // namespace flashcore
