#include "codegen/analysis/ring_barriers.h"

#include <set>
#include <utility>

#include "codegen/analysis/shared_use.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {

using namespace ir;

Releaser releaser_of(const Function& f, BufferId ring) {
  if (f[ring].holds_scalars()) return Releaser::thread;
  const auto reads = [&](const Op& op) {
    if (op.code != OpCode::convert || op.buffer) return false;
    const BufferId read = buffer_of(f, op.operands[0]);
    return read == ring || (read && f[read].beside == ring);
  };
  return any_op(f, f.body, reads) ? Releaser::warp : Releaser::warpgroup;
}

int fills_of(const Function& f, BufferId ring) {
  if (f[ring].transport != Transport::warps) return 1;
  int warps = 0;
  for (OpId role : roles_of(f))
    if (any_op(f, f[role].body,
               [&](const Op& op) { return op.code == OpCode::issue && op.buffer == ring; }))
      warps = f[role].warps;
  return warps;
}

RingBarriers ring_barriers(const Function& f, int bytes) {
  constexpr int size = 8, warp = 32, warps_of_group = 4;
  RingBarriers barriers{.rings = {}, .end = bytes};
  for_each_op(f, f.body, [&](const Op& op, BlockId) {
    if (op.code != OpCode::issue || barriers.rings.count(op.buffer) || f[op.buffer].beside) return;
    const Transport transport = f[op.buffer].transport;
    if (transport == Transport::vector || transport == Transport::cp_async) return;
    Buffer& ring = barriers.rings[op.buffer] = f[op.buffer];
    ring.empty = ring.releases = 0;
    ring.full = (barriers.end + size - 1) / size * size;
    barriers.end = ring.full + size * ring.stages;
    std::set<OpId> fill, read;  // the roles that do
    for (OpId role : roles_of(f))
      for_each_op(f, f[role].body, [&](const Op& used, BlockId) {
        if (used.buffer != op.buffer) return;
        if (used.code == OpCode::issue) fill.insert(role);
        if (used.code == OpCode::wait) read.insert(role);
      });
    const bool by_warps = transport == Transport::warps;
    if (fill != read || ring.blocks > 1 || by_warps) {
      ring.empty = barriers.end;
      barriers.end += size * ring.stages;
      const Releaser by = releaser_of(f, op.buffer);
      // One thread reads in a producer, and one fills the slots of a role that fills what it reads.
      const auto is_one_thread = [&](OpId reader) {
        return works_in_one_thread(f, f[reader]) || (fill.contains(reader) && !by_warps);
      };
      for (OpId reader : read)
        ring.releases += is_one_thread(reader)    ? 1
                         : by == Releaser::thread ? f[reader].warps * warp
                         : by == Releaser::warp   ? f[reader].warps
                                                  : f[reader].warps / warps_of_group;
    }
    if (ring.holds_scalars())
      ring.offset = std::exchange(barriers.end, barriers.end + ring.bytes());
  });
  return barriers;
}

}  // namespace flashcore
