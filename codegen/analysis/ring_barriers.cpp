#include "codegen/analysis/ring_barriers.h"

namespace flashcore {

using namespace ir;

RingBarriers ring_barriers(const Function& f, const Schedule& schedule, int bytes) {
  constexpr int size = 8;
  RingBarriers barriers;
  barriers.end = bytes;
  const auto reserve = [&](int slots) {
    const int start = (barriers.end + size - 1) / size * size;
    barriers.end = start + (schedule.producer ? 2 : 1) * size * slots;
    return start;
  };
  for_each_op(f, f.body, [&](const Op& op, BlockId) {
    if (op.code != OpCode::fill_slot || barriers.at.count(op.buffer)) return;
    barriers.at[op.buffer] = reserve(f[op.buffer].stages);
  });
  if (schedule.persistent && schedule.tile_order == TileOrder::counter && !barriers.at.empty()) {
    barriers.drawn_at = reserve(RingBarriers::drawn_slots);
    barriers.end += 4 * RingBarriers::drawn_slots;
  }
  return barriers;
}

}  // namespace flashcore
