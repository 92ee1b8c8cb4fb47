#include "codegen/analysis/ring_barriers.h"

namespace flashcore {

using namespace ir;

RingBarriers ring_barriers(const Function& f, int bytes) {
  constexpr int size = 8, warp = 32, warps_of_group = 4;
  bool has_producer = false;
  int readers = 0;  // warps
  for (OpId id : f[f.body].ops) {
    has_producer = has_producer || f[id].code == OpCode::producer;
    if (f[id].code == OpCode::consumers) readers = f[id].warps;
  }
  RingBarriers barriers;
  barriers.end = bytes;
  for_each_op(f, f.body, [&](const Op& op, BlockId) {
    if ((op.code != OpCode::fill_slot && op.code != OpCode::give_slot) ||
        barriers.of.count(op.buffer))
      return;
    const Buffer& ring = f[op.buffer];
    RingBarriersOf& place = barriers.of[op.buffer];
    place.full = (barriers.end + size - 1) / size * size;
    place.behind = place.full + size * ring.stages;
    if (has_producer) {
      place.empty = place.behind;
      place.behind += size * ring.stages;
      place.releases = ring.holds_scalars() ? readers * warp : readers / warps_of_group;
    }
    barriers.end = place.behind + (ring.holds_scalars() ? ring.bytes() : 0);
  });
  return barriers;
}

}  // namespace flashcore
