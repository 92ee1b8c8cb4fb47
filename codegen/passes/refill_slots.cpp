// A role that reads the channels it fills has no producer beside it. One of its threads issues all
// copies: of a loop's tiles as many as a channel has slots, where the loop of copies stood, and one
// more wherever a slot is released. Such a slot needs no mbarrier that says it is empty: the thread
// has waited for the last product that reads the slot, and a product of a warpgroup completes for
// its four warps together.
//
//   loop cols { issue k ; issue v }   becomes     %next_k, %next_v = if %first {
//                                                   for each slot { the next tiles ; issue k, v }
//                                                 }
//   wait k ; issue products                       wait k ; issue products
//                                                 %next_k' = if %first { the tile behind %next_k }
//   wait for products                             wait for products
//                                                 if %first and %next_k' exists { issue k }
//   release k                                     release k
//
// The tile that a channel gets next is carried through loops and conditions. It moves on while
// products are in flight, since among scanned tiles that takes a while.
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "codegen/passes/copy_ops.h"
#include "codegen/passes/loop_tiles.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"
#include "dsl/ir/builder.h"

namespace flashcore {
namespace {

using namespace ir;

const TileType integer{DType::i32, {}};

/// What happens to the rings of one loop of fills.
class Refills {
 public:
  Refills(Function& f, OpId loop, ValueId first) : f_(f), loop_(f[loop]), first_(first) {
    for (OpId id : f[loop_.body].ops)
      if (f[id].code == OpCode::issue) fills_.push_back(id);
  }

  /// Puts the first fills in the place of the loop in the role's `block`, and the others behind it.
  void run(BlockId block, OpId loop) {
    Builder b = before(f_, block, loop);
    b.remove(loop);
    States states(fills_.size());
    fill_all_slots(b, states);
    walk(block, b.position(), states, {});
  }

 private:
  /// Of a ring: the tile that it gets next; whether the thread is to fill it with that, known from
  /// where the tile moves on to where the slot is released; whether it has been awaited since.
  struct State {
    ValueId next, fills;
    bool awaited = false;
  };
  using States = std::vector<State>;

  void fill_all_slots(Builder& b, States& states) {
    tiles_ = LoopTiles(b, loop_);
    const std::vector<ValueId> starts(fills_.size(), tiles_.in_front(b));
    const int stages = f_[f_[fills_[0]].buffer].stages;
    const std::vector<ValueId> next = build_if(
        b, first_,
        [&](Builder& in) {
          return stages == 1 ? fill_each(in, starts, {}) : fill_slots_of_all(in, starts, stages);
        },
        [&](Builder&) { return starts; });
    for (std::size_t i = 0; i < fills_.size(); ++i) states[i].next = named(next[i], i);
  }

  std::vector<ValueId> fill_slots_of_all(Builder& b, const std::vector<ValueId>& starts,
                                         int stages) {
    const ValueId none = b.integer(0), all = b.integer(stages);
    const BlockId body = f_.add_block();
    const ValueId slot = f_.add_argument(body, integer, "slot");
    const OpId id =
        b.append({.code = OpCode::loop, .operands = {none, all}, .body = body, .bounds = 2}, {});
    std::vector<ValueId> tiles;
    for (std::size_t i = 0; i < starts.size(); ++i)
      tiles.push_back(add_carried(f_, id, starts[i], name_of_next(i)));
    Builder inside(f_, body);
    const std::vector<ValueId> next = fill_each(inside, tiles, slot);
    inside.append({.code = OpCode::yield, .operands = next}, {});
    return f_[id].results;
  }

  /// Fills a slot of every ring with the tile behind the one given.
  std::vector<ValueId> fill_each(Builder& b, std::vector<ValueId> tiles, ValueId slot) {
    for (std::size_t i = 0; i < tiles.size(); ++i) {
      tiles[i] = named(tiles_.behind(b, tiles[i]), i);
      append_load(b, i, tiles_.exists(b, tiles[i]), tiles[i], slot);
    }
    return tiles;
  }

  void append_load(Builder& b, std::size_t ring, ValueId when, ValueId tile, ValueId slot) {
    build_if(b, when, [&](Builder& in) -> std::vector<ValueId> {
      enter_tile(in, loop_, tile);
      Op fill = f_[fills_[ring]];
      if (fill.body) fill.body = OpCopier(f_).copy_region(fill.body);
      if (slot) fill.operands = {slot};
      in.append(std::move(fill), {});
      return {};
    });
  }

  // From release to release. `behind` are the rings that are released behind the block as well.

  void walk(BlockId block, std::size_t from, States& states, const std::set<std::size_t>& behind) {
    const auto visit = [&](Builder& b, OpId id) {
      switch (f_[id].code) {
        case OpCode::wait:
          if (const std::size_t ring = ring_of(f_[id]); ring < fills_.size())
            states[ring].awaited = true;
          break;
        case OpCode::wait_products:
          for (std::size_t ring = 0; ring < fills_.size(); ++ring)
            if (states[ring].awaited) advance(b, ring, states[ring]);
          break;
        case OpCode::release:
          if (const std::size_t ring = ring_of(f_[id]); ring < fills_.size())
            refill(b, ring, states[ring]);
          break;
        case OpCode::loop:
          through_loop(id, states);
          break;
        case OpCode::if_: {
          std::set<std::size_t> needed = behind;
          for (std::size_t k = b.position() + 1; k < f_[block].ops.size(); ++k)
            needed.merge(released_in(f_[block].ops[k]));
          through_condition(id, states, needed);
          break;
        }
        default:
          break;
      }
    };
    rewrite_ops(f_, block, visit, from);
  }

  /// The tile that a ring gets next.
  void advance(Builder& b, std::size_t ring, State& state) {
    const ValueId next = build_if(
        b, first_, [&](Builder& in) { return std::vector{tiles_.behind(in, state.next)}; },
        [&](Builder&) { return std::vector{state.next}; })[0];
    state.next = named(next, ring);
    state.fills = b.elementwise(OpCode::logical_and, {first_, tiles_.exists(b, state.next)});
    state.awaited = false;
  }

  void refill(Builder& b, std::size_t ring, State& state) {
    if (state.awaited) advance(b, ring, state);
    append_load(b, ring, std::exchange(state.fills, {}), state.next, {});
  }

  void through_loop(OpId id, States& states) {
    const std::set<std::size_t> released = released_in(id);
    States inside = states;
    for (std::size_t ring : released)
      inside[ring].next = add_carried(f_, id, states[ring].next, name_of_next(ring));
    walk(f_[id].body, 0, inside, released);
    std::size_t result = f_[id].results.size() - released.size();
    for (std::size_t ring : released) {
      last_of(f_, f_[id].body).operands.push_back(inside[ring].next);
      states[ring] = {f_[id].results[result++], {}};
    }
  }

  void through_condition(OpId id, States& states, const std::set<std::size_t>& needed) {
    const std::set<std::size_t> released = released_in(id);
    if (released.empty()) return;
    if (!f_[id].otherwise) f_[id].otherwise = build_region(Builder(f_, {}), region_of({}));
    const States before = states;
    for (const BlockId region : Regions(f_[id])) {
      States inside = before;
      walk(region, 0, inside, needed);
      for (std::size_t ring : released)
        if (needed.count(ring)) last_of(f_, region).operands.push_back(inside[ring].next);
    }
    for (std::size_t ring : released) {
      if (!needed.count(ring)) continue;
      const ValueId after = named(f_.add_value(integer), ring);
      f_[after].definition = id;
      f_[id].results.push_back(after);
      states[ring] = {after, {}};
    }
  }

  [[nodiscard]] std::set<std::size_t> released_in(OpId id) const {
    std::set<std::size_t> rings;
    for (std::size_t ring = 0; ring < fills_.size(); ++ring)
      if (any_op_of(f_, f_[id], [&](const Op& op) {
            return op.code == OpCode::release && ring_of(op) == ring;
          }))
        rings.insert(ring);
    return rings;
  }

  [[nodiscard]] std::size_t ring_of(const Op& op) const {
    std::size_t ring = 0;
    while (ring < fills_.size() && f_[fills_[ring]].buffer != op.buffer) ++ring;
    return ring;
  }

  // Values.

  [[nodiscard]] std::string name_of_next(std::size_t ring) const {
    return "next_" + f_[f_[fills_[ring]].buffer].name;
  }
  ValueId named(ValueId value, std::size_t ring) {
    f_[value].name = name_of_next(ring);
    return value;
  }

  Function& f_;
  const Op loop_;
  const ValueId first_;
  std::vector<OpId> fills_;
  LoopTiles tiles_;
};

/// Lets the first thread do what a role would do with all: each fill, and each loop of fills.
void refill(Function& f, BlockId work) {
  const ValueId first = Builder(f, work, 0).make({.code = OpCode::first_thread}, {DType::i1, {}});
  rewrite_ops(f, work, [&](Builder& b, OpId id) {
    if (f[id].code == OpCode::issue) {
      build_if(b, first, region_of({id}));
      b.remove(id);
    } else if (f[id].code == OpCode::loop && f[f[f[id].body].ops[0]].code == OpCode::issue) {
      Refills(f, id, first).run(work, id);
    }
  });
}

}  // namespace

void refill_slots(Function& f, const PassContext&) {
  for (OpId role : roles_of(f))
    if (work_of(f, f[role]) == f[role].body && holds(f, f[role].body, OpCode::issue))
      refill(f, f[role].body);
}

}  // namespace flashcore
