// Named barriers, at which some warps of a block meet while others go on. A block has 16; barrier 0
// is that of all threads. Each purpose gets a run of four, so that every warpgroup of a role may
// have one of its own:
//
//   where the warps of a warpgroup meet, around a store by the copy engine
//   where a warpgroup waits in ping-pong
//   where all warps of a role meet, once what lies beyond a ragged axis is zero
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

constexpr int of_warpgroups = 1, of_ping_pong = 5, of_role = 9;

int barrier_of(const Op& op) {
  switch (op.code) {
    case OpCode::meet_warpgroup:
      return of_warpgroups;
    case OpCode::meet_role:
      return of_role;
    case OpCode::ping_pong_open:
    case OpCode::ping_pong_close:
    case OpCode::ping_pong_wait:
    case OpCode::ping_pong_arrive:
      return of_ping_pong;
    default:
      return 0;
  }
}

}  // namespace

void number_barriers(Function& f, const PassContext&) {
  for (OpId role : roles_of(f))
    for_each_op(f, f[role].body, [&](Op& op, BlockId) { op.barrier = barrier_of(op); });
}

}  // namespace flashcore
