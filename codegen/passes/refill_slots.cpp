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
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "codegen/passes/copy_ops.h"
#include "codegen/passes/loop_tiles.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

const TileType integer{DType::i32, {}};

/// What happens to the rings of one loop of fills.
class Refills {
 public:
  Refills(Function& f, OpId loop, ValueId first) : f_(f), loop_(f[loop]), first_(first) {
    for (OpId id : f[loop_.body].ops)
      if (f[id].code == OpCode::issue) fills_[f[id].buffer] = id;
  }

  /// Puts the first fills in the place of the loop in the role's `block`, and the others behind it.
  void run(BlockId block, OpId loop) {
    Builder b = before(f_, block, loop);
    b.remove(loop);
    States states = fill_all_slots(b);
    walk(block, b.position(), states, {});
  }

 private:
  /// Of a ring: the tile that it gets next; whether the thread is to fill it with that, known from
  /// where the tile moves on to where the slot is released; whether it has been awaited since.
  struct State {
    ValueId next, fills;
    bool awaited = false;
  };
  using States = std::map<BufferId, State>;
  using Rings = std::set<BufferId>;

  States fill_all_slots(Builder& b) {
    tiles_ = LoopTiles(b, loop_);
    const std::vector<ValueId> starts(fills_.size(), tiles_.in_front(b));
    const int stages = f_[fills_.begin()->first].stages;
    const auto fill_all = [&](Builder& in) {
      return stages == 1 ? fill_each(in, starts, {}) : fill_slots_of_all(in, starts, stages);
    };
    const std::vector<ValueId> next = build_if(b, first_, fill_all, region_of({}, starts));
    States states;
    auto tile = next.begin();
    for (const auto& [ring, fill] : fills_) states[ring].next = name_next(*tile++, ring);
    return states;
  }

  std::vector<ValueId> fill_slots_of_all(Builder& b, const std::vector<ValueId>& starts,
                                         int stages) {
    const ValueId none = b.integer(0), all = b.integer(stages);
    const BlockId body = f_.add_block();
    const ValueId slot = f_.add_argument(body, integer, "slot");
    const OpId id =
        b.append({.code = OpCode::loop, .operands = {none, all}, .body = body, .bounds = 2});
    std::vector<ValueId> tiles;
    for (const auto& [ring, fill] : fills_)
      tiles.push_back(add_carried(f_, id, starts[tiles.size()], name_of_next(ring)));
    Builder inside(f_, body);
    const std::vector<ValueId> next = fill_each(inside, tiles, slot);
    inside.append({.code = OpCode::yield, .operands = next});
    return f_[id].results;
  }

  /// Fills a slot of every ring with the tile behind the one given.
  std::vector<ValueId> fill_each(Builder& b, std::vector<ValueId> tiles, ValueId slot) {
    auto tile = tiles.begin();
    for (const auto& [ring, fill] : fills_) {
      *tile = name_next(tiles_.behind(b, *tile), ring);
      append_load(b, ring, tiles_.exists(b, *tile), *tile, slot);
      ++tile;
    }
    return tiles;
  }

  void append_load(Builder& b, BufferId ring, ValueId when, ValueId tile, ValueId slot) {
    build_if(b, when, [&](Builder& in) -> std::vector<ValueId> {
      enter_tile(in, loop_, tile);
      Op fill = f_[fills_.at(ring)];
      if (fill.body) fill.body = OpCopier(f_).copy_region(fill.body);
      if (slot) fill.operands = {slot};
      in.append(std::move(fill));
      return {};
    });
  }

  // From release to release. `behind` are the rings that are released behind the block as well.

  void walk(BlockId block, std::size_t from, States& states, const Rings& behind) {
    const auto visit = [&](Builder& b, OpId id) {
      switch (f_[id].code) {
        case OpCode::wait:
          if (const auto ring = states.find(f_[id].buffer); ring != states.end())
            ring->second.awaited = true;
          break;
        case OpCode::wait_products:
          for (auto& [ring, state] : states)
            if (state.awaited) advance(b, ring, state);
          break;
        case OpCode::release:
          if (const auto ring = states.find(f_[id].buffer); ring != states.end())
            refill(b, ring->first, ring->second);
          break;
        case OpCode::loop:
          through_loop(id, states);
          break;
        case OpCode::if_: {
          Rings needed = behind;
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
  void advance(Builder& b, BufferId ring, State& state) {
    const auto move_on = [&](Builder& in) { return std::vector{tiles_.behind(in, state.next)}; };
    const ValueId next = build_if(b, first_, move_on, region_of({}, {state.next}))[0];
    state.next = name_next(next, ring);
    state.fills = b.elementwise(OpCode::logical_and, {first_, tiles_.exists(b, state.next)});
    state.awaited = false;
  }

  void refill(Builder& b, BufferId ring, State& state) {
    if (state.awaited) advance(b, ring, state);
    append_load(b, ring, std::exchange(state.fills, {}), state.next, {});
  }

  void through_loop(OpId id, States& states) {
    const Rings released = released_in(id);
    States inside = states;
    for (const BufferId ring : released)
      inside[ring].next = add_carried(f_, id, states[ring].next, name_of_next(ring));
    walk(f_[id].body, 0, inside, released);
    std::size_t result = f_[id].results.size() - released.size();
    for (const BufferId ring : released) {
      last_of(f_, f_[id].body).operands.push_back(inside[ring].next);
      states[ring] = {f_[id].results[result++], {}};
    }
  }

  void through_condition(OpId id, States& states, const Rings& needed) {
    const Rings released = released_in(id);
    if (released.empty()) return;
    if (!f_[id].otherwise) f_[id].otherwise = build_region(Builder(f_, {}), region_of({}));
    const States before = states;
    for (const BlockId region : Regions(f_[id])) {
      States inside = before;
      walk(region, 0, inside, needed);
      for (const BufferId ring : released)
        if (needed.count(ring)) last_of(f_, region).operands.push_back(inside[ring].next);
    }
    for (const BufferId ring : released) {
      if (!needed.count(ring)) continue;
      const ValueId after = name_next(f_.add_value(integer), ring);
      f_[after].definition = id;
      f_[id].results.push_back(after);
      states[ring] = {after, {}};
    }
  }

  [[nodiscard]] Rings released_in(OpId id) const {
    Rings rings;
    for (const auto& [ring, fill] : fills_) {
      const auto releases = [ring = ring](const Op& op) {
        return op.code == OpCode::release && op.buffer == ring;
      };
      if (any_op_of(f_, f_[id], releases)) rings.insert(ring);
    }
    return rings;
  }

  // Values.

  [[nodiscard]] std::string name_of_next(BufferId ring) const { return "next_" + f_[ring].name; }
  ValueId name_next(ValueId value, BufferId ring) { return named(f_, value, name_of_next(ring)); }

  Function& f_;
  const Op loop_;
  const ValueId first_;
  std::map<BufferId, OpId> fills_;  ///< by ring
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
    if (work_of(f, f[role]) == f[role].body && any_op(f, f[role].body, [&](const Op& op) {
          return op.code == OpCode::issue && f[op.buffer].transport != Transport::warps;
        }))
      refill(f, f[role].body);
}

}  // namespace flashcore
