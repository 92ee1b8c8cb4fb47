// Named barriers, at which some warps of a block meet while others go on. A block has 16; barrier 0
// is that of all threads. Each purpose gets a run of four, so that every warpgroup of a role may
// have one of its own:
//
//   where the warps of a warpgroup meet around a store by the copy engine
//   where a warpgroup waits for its turn
//   where all consumers meet, once what lies beyond a ragged axis is zero
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

constexpr int of_stores = 1, of_turns = 5, of_cleared_tiles = 9;

int barrier_of(const Function& f, const Op& op) {
  switch (op.code) {
    case OpCode::await_stores:
      return of_stores;
    case OpCode::store:
      return f[op.operands[0]].home.space == Space::shared ? of_stores : 0;
    case OpCode::open_turns:
    case OpCode::close_turns:
    case OpCode::await_turn:
    case OpCode::pass_turn:
      return of_turns;
    case OpCode::await_slot:
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
