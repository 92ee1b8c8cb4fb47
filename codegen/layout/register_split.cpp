#include "codegen/layout/register_split.h"

#include <algorithm>

namespace flashcore {

RegisterSplit register_split(const Schedule& schedule) {
  if (!schedule.producer) return {};
  constexpr int step = 8, least = 24, most = 240, registers = 65536, group = 128;
  const int consumers = schedule.consumer_threads() / group;
  // What the compiler gives a thread of a block of which so many fit, in whole steps.
  const int fair = registers / (schedule.threads() * schedule.blocks_per_processor) / step * step;
  const int total = std::min(fair, 248) * (consumers + 1);
  RegisterSplit split;
  if (fair >= most && !schedule.producer_registers && !schedule.consumer_registers) return split;
  split.producer = schedule.producer_registers ? schedule.producer_registers
                   : consumers == 3            ? 32
                                               : least;
  split.consumer = schedule.consumer_registers
                       ? schedule.consumer_registers
                       : std::min(most, (total - split.producer) / consumers / step * step);
  return split;
}

}  // namespace flashcore
