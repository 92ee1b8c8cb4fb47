// Blocks that add to the same elements in order (stores `adding in order of turns`) wait for each
// other. Each has an element of `turns` for itself, and notes there up to which position it has added
// all that it adds. The turn of a block is behind that of its neighbour which is launched before it,
// so that nobody waits for a block that has not started:
//
//   loop rows {                               release_turn turns[...], %begin       (start_turns)
//     ...                                     loop rows {
//     store sums[rows, d], %x        ->         ...
//       adding in order of turns                wait_turn turns[...], %end_of_tile along cols
//   }                                           store sums[rows, d], %x adding in order of turns
//                                               meet_role
//                                               release_turn turns[...], %end_of_tile
//                                             }
//
// A note says of all blocks whose turn is earlier, not only of this one, that they have added what
// they add in front of the position: the block has waited for their notes. It has not where its own
// loop visits no tile: in front of its first and behind its last. There it may note a position
// without a wait if the bounds of the loop rise or fall with the block's own position, as they do
// under causal and window masks: either no earlier block adds there, or no later one.
#include <climits>

#include <fmt/format.h>

#include "codegen/analysis/slope.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"
#include "dsl/error.h"

namespace flashcore {
namespace {

using namespace ir;

bool adds_in_order(const Op& op) {
  return op.code == OpCode::store && op.accumulation == Accumulation::in_order;
}

/// Along which the stores of an iteration lie.
AxisId axis_of_loop(const Function& f, const Op& store) {
  for (const Coordinate& c : store.coordinates)
    if (c.axis && f[c.axis].kind == AxisKind::tiles) return f.origin(c.axis);
  return {};
}

/// The axis of blocks that add to the same elements: the only parallel one of tiles.
AxisId axis_of_blocks(const Function& f) { return first_axis_of(f, AxisKind::parallel_tiles); }

/// All threads of the role, or of the block where there are no roles.
void meet(Builder& b) {
  const bool in_role = !roles_of(b.function()).empty();
  b.append({.code = in_role ? OpCode::meet_role : OpCode::barrier});
}

void append_turn(Builder& b, OpCode code, const Op& store, ValueId position) {
  const Function& f = b.function();
  Op op{.code = code, .operands = {position}, .axis = axis_of_blocks(f), .tensor = store.turns};
  for (std::size_t i = 0; i < f.axes.size(); ++i) {
    if (f.axes[i].kind == AxisKind::parallel)
      op.coordinates.push_back({.axis = {}, .value = b.index(AxisId(i))});
    else if (f.axes[i].kind == AxisKind::parallel_tiles)
      op.coordinates.push_back({.axis = AxisId(i), .value = {}});
  }
  b.append(std::move(op));
}

void start_loop(Function& f, Builder& b, OpId id, const Op& store) {
  const Op loop = f[id];
  const AxisId along = axis_of_loop(f, store), blocks = axis_of_blocks(f);
  if (loop.axis != along)
    throw SpecError({fmt::format("a store to {} in a loop over {}", f[store.tensor].name,
                                 loop.axis ? f[loop.axis].name : "no axis"),
                     fmt::format("blocks pass their turn on along {}", f[along].name),
                     fmt::format("store in the loop over {}", f[along].name), store.where});
  if (loop.bounds == 0) return;
  const auto note = [&](ValueId come_to, ValueId bound) {
    if (!slope_along(f, bound, blocks)) {
      append_turn(b, OpCode::wait_turn, store, come_to);
      meet(b);
    }
    append_turn(b, OpCode::release_turn, store, come_to);
  };
  const ValueId first = loop.operands[0], last = loop.operands[1];
  if (!is_number(f, first, 0)) note(b.mul(first, b.integer(f[along].tile)), first);
  b.go_behind(id);
  if (!definition_as(f, last, OpCode::tile_count)) note(b.integer(INT_MAX), last);
}

/// In front of loops with such stores, and behind them.
void start_in(Function& f, BlockId block) {
  rewrite_ops(f, block, [&](Builder& b, OpId id) {
    const Op op = f[id];
    if (op.code == OpCode::role || op.code == OpCode::tile_loop || op.code == OpCode::if_)
      for (const BlockId region : Regions(op)) start_in(f, region);
    if (op.code != OpCode::loop) return;
    const Op* store = nullptr;
    for_each_op(f, op.body, [&](const Op& inner, BlockId) {
      if (adds_in_order(inner)) store = &inner;
    });
    if (store) start_loop(f, b, id, Op(*store));
  });
}

}  // namespace

void start_turns(Function& f, const PassContext&) { start_in(f, f.body); }

void take_turns(Function& f, const PassContext&) {
  rewrite_inside_out(f, f.body, [&](Builder& b, OpId id) {
    const Op op = f[id];
    if (!adds_in_order(op)) return;
    const AxisId along = axis_of_loop(f, op);
    const ValueId end =
        named(f, b.add(b.tile_begin(along), b.integer(f[along].tile)), "end_of_tile");
    append_turn(b, OpCode::wait_turn, op, end);
    b.go_behind(id);
    meet(b);
    append_turn(b, OpCode::release_turn, op, end);
  });
}

}  // namespace flashcore
