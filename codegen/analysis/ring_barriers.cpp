#include "codegen/analysis/ring_barriers.h"

#include <set>

#include "codegen/analysis/shared_use.h"
#include "codegen/analysis/visit.h"

namespace flashcore {

using namespace ir;

namespace {

/// The roles that fill a ring, and those that read it.
struct RolesOf {
  std::set<OpId> fill, read;
};

bool has_mbarriers(const Buffer& channel) {
  return channel.transport == Transport::tma || channel.transport == Transport::store;
}

std::map<BufferId, RolesOf> roles_of_rings(const Function& f) {
  std::map<BufferId, RolesOf> rings;
  for (OpId role : f[f.body].ops) {
    if (f[role].code != OpCode::role) continue;
    for_each_op(f, f[role].body, [&](const Op& op, BlockId) {
      if (op.code == OpCode::issue) rings[op.buffer].fill.insert(role);
      if (op.code == OpCode::wait) rings[op.buffer].read.insert(role);
    });
  }
  return rings;
}

}  // namespace

Releaser releaser_of(const Function& f, BufferId ring) {
  if (f[ring].holds_scalars()) return Releaser::thread;
  const auto reads = [&](const Op& op) {
    return op.code == OpCode::convert && !op.buffer && buffer_of(f, op.operands[0]) == ring;
  };
  return any_op(f, f.body, reads) ? Releaser::warp : Releaser::warpgroup;
}

RingBarriers ring_barriers(const Function& f, int bytes) {
  constexpr int size = 8, warp = 32, warps_of_group = 4;
  const std::map<BufferId, RolesOf> roles = roles_of_rings(f);
  RingBarriers barriers;
  barriers.end = bytes;
  for_each_op(f, f.body, [&](const Op& op, BlockId) {
    if (op.code != OpCode::issue || !has_mbarriers(f[op.buffer]) || barriers.of.count(op.buffer))
      return;
    const Buffer& ring = f[op.buffer];
    RingBarriersOf& place = barriers.of[op.buffer];
    place.full = (barriers.end + size - 1) / size * size;
    place.behind = place.full + size * ring.stages;
    if (const auto of = roles.find(op.buffer);
        of != roles.end() && (of->second.fill != of->second.read || ring.blocks > 1)) {
      place.empty = place.behind;
      place.behind += size * ring.stages;
      const Releaser by = releaser_of(f, op.buffer);
      for (OpId reader : of->second.read)
        place.releases += of->second.fill.contains(reader) ? 1  // the thread that fills it
                          : by == Releaser::thread         ? f[reader].warps * warp
                          : by == Releaser::warp           ? f[reader].warps
                                                           : f[reader].warps / warps_of_group;
    }
    barriers.end = place.behind + (ring.holds_scalars() ? ring.bytes() : 0);
  });
  return barriers;
}

}  // namespace flashcore
