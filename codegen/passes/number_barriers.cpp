// Named barriers, which synchronise some warps of a block while others go on. A block has 16;
// barrier 0 is that of all threads. Each purpose gets a run of four, so that every warpgroup of a
// role may have one of its own:
//
//   for the warps of a warpgroup, around a store by the copy engine
//   for ping-pong, where a warpgroup waits until it may issue its products
//   for all consumers, once the elements beyond a ragged axis are zero
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

constexpr int of_stores = 1, of_ping_pong = 5, of_cleared_tiles = 9;

int barrier_of(const Function& f, const Op& op) {
  switch (op.code) {
    case OpCode::wait_stores:
      return of_stores;
    case OpCode::store:
      return f[op.operands[0]].layout.space == Space::shared ? of_stores : 0;
    case OpCode::ping_pong_open:
    case OpCode::ping_pong_close:
    case OpCode::ping_pong_wait:
    case OpCode::ping_pong_arrive:
      return of_ping_pong;
    case OpCode::consumer_wait:
      return op.operands.empty() ? 0 : of_cleared_tiles;
    default:
      return 0;
  }
}

}  // namespace

void number_barriers(Function& f, const PassContext&) {
  for (OpId role : roles_of(f))
    for_each_op(f, f[role].body, [&](Op& op, BlockId) { op.barrier = barrier_of(f, op); });
}

}  // namespace flashcore
