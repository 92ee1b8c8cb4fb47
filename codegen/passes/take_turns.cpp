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

#include "codegen/analysis/position_axis.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"
#include "dsl/error.h"

namespace flashcore {
namespace {

using namespace ir;

bool adds_in_order(const Op& op) {
  return op.code == OpCode::store && op.accumulation == Accumulation::in_order;
}

class Turns {
 public:
  Turns(Function& f, BlockId role) : f_(f), in_role_(static_cast<bool>(role)) {}

  /// In front of loops with such stores, and behind them.
  void start(BlockId block) {
    for (std::size_t i = 0; i < f_[block].ops.size(); ++i) {
      const Op op = f_[f_[block].ops[i]];
      if (op.code == OpCode::role || op.code == OpCode::tile_loop || op.code == OpCode::if_) {
        for (const BlockId region : Regions(op)) start(region);
        continue;
      }
      if (op.code != OpCode::loop) continue;
      const Op* store = nullptr;
      for_each_op(f_, op.body, [&](const Op& inner, BlockId) {
        if (adds_in_order(inner)) store = &inner;
      });
      if (store) i += start_loop(block, i, op, Op(*store));
    }
  }

  /// Around such stores.
  void take(BlockId block) {
    for (std::size_t i = 0; i < f_[block].ops.size(); ++i) {
      const Op op = f_[f_[block].ops[i]];
      for (const BlockId region : Regions(op)) take(region);
      if (!adds_in_order(op)) continue;
      ValueId end;
      i += insert_before(f_, block, i, op.where, [&](Builder& b) {
        const AxisId along = axis_of_loop(op);
        end = b.add(b.tile_begin(along), b.constant(f_[along].tile, DType::i32));
        f_[end].name = "end_of_tile";
        append(b, OpCode::wait_turn, op, end);
      });
      i += insert_before(f_, block, i + 1, op.where, [&](Builder& b) {
        b.append({.code = in_role_ ? OpCode::meet_role : OpCode::barrier}, {});
        append(b, OpCode::release_turn, op, end);
      });
    }
  }

 private:
  /// Along which the stores of an iteration lie.
  [[nodiscard]] AxisId axis_of_loop(const Op& store) const {
    for (const Coordinate& c : store.coordinates)
      if (c.axis && f_[c.axis].kind == AxisKind::tiles) return f_.origin(c.axis);
    return {};
  }

  /// The axis of blocks that add to the same elements: the only parallel one of tiles.
  [[nodiscard]] AxisId axis_of_blocks() const {
    for (std::size_t i = 0; i < f_.axes.size(); ++i)
      if (f_.axes[i].kind == AxisKind::parallel_tiles) return AxisId(i);
    return {};
  }

  std::size_t start_loop(BlockId block, std::size_t at, const Op& loop, const Op& store) {
    const AxisId along = axis_of_loop(store), blocks = axis_of_blocks();
    if (loop.axis != along)
      throw SpecError({fmt::format("a store to {} in a loop over {}", f_[store.tensor].name,
                                   loop.axis ? f_[loop.axis].name : "no axis"),
                       fmt::format("blocks pass their turn on along {}", f_[along].name),
                       fmt::format("store in the loop over {}", f_[along].name), store.where});
    if (loop.bounds == 0) return 0;
    const auto note = [&](std::size_t position, bool waits, const auto& make) {
      return insert_before(f_, block, position, store.where, [&](Builder& b) {
        const ValueId come_to = make(b);
        if (waits) append(b, OpCode::wait_turn, store, come_to);
        if (waits) b.append({.code = in_role_ ? OpCode::meet_role : OpCode::barrier}, {});
        append(b, OpCode::release_turn, store, come_to);
      });
    };
    const auto is_monotone = [&](ValueId bound) {
      return trend_along(f_, bound, blocks) != Trend::unknown;
    };
    const ValueId first = loop.operands[0], last = loop.operands[1];
    std::size_t placed = 0;
    if (const double* begin = constant_of(f_, first); !begin || *begin != 0)
      placed += note(at, !is_monotone(first), [&](Builder& b) {
        return b.mul(first, b.constant(f_[along].tile, DType::i32));
      });
    const Op* end = f_.definition(last);
    if (!end || end->code != OpCode::tile_count)
      placed += note(at + placed + 1, !is_monotone(last),
                     [&](Builder& b) { return b.constant(INT_MAX, DType::i32); });
    return placed;
  }

  void append(Builder& b, OpCode code, const Op& store, ValueId position) {
    Op op{.code = code, .operands = {position}, .axis = axis_of_blocks(), .tensor = store.turns};
    for (std::size_t i = 0; i < f_.axes.size(); ++i) {
      if (f_.axes[i].kind == AxisKind::parallel)
        op.coordinates.push_back({.axis = {}, .value = b.index(AxisId(i))});
      else if (f_.axes[i].kind == AxisKind::parallel_tiles)
        op.coordinates.push_back({.axis = AxisId(i), .value = {}});
    }
    b.append(std::move(op), {});
  }

  Function& f_;
  const bool in_role_;
};

template <class Act>
void in_each_role(Function& f, const Act& act) {
  const std::vector<OpId> roles = roles_of(f);
  if (roles.empty()) {
    Turns turns(f, {});
    act(turns, f.body);
  }
  for (const OpId role : roles) {
    Turns turns(f, f[role].body);
    act(turns, f[role].body);
  }
}

}  // namespace

void start_turns(Function& f, const PassContext&) {
  in_each_role(f, [](Turns& turns, BlockId block) { turns.start(block); });
}

void take_turns(Function& f, const PassContext&) {
  in_each_role(f, [](Turns& turns, BlockId block) { turns.take(block); });
}

}  // namespace flashcore
