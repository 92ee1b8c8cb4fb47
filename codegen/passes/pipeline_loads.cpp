// Loads into shared memory become asynchronous copies.
//
// Outside loops a copy is issued where the load stood, and waited for at the first product that
// needs it. In a loop every load gets a ring of `stages` slots, and copies are issued stages - 1
// tiles ahead:
//
//   before    for s in 0 .. stages-2: copy tile s into slot s; commit
//   each      wait until the oldest group has completed
//             copy tile +(stages-1) into the slot that the previous iteration has freed; commit
//             ... use slot ...
//             slot = next slot
//   after     wait for everything: a loop of no iterations leaves copies in flight
//
// The copies of one iteration are one group, so one wait and (insert_barriers) one barrier an
// iteration suffice.
//
// With one stage each load has one slot, and the loads form a relay: in front of the products that
// first use one of them, the pass waits for it and issues the next load, and behind the last load
// comes the first one's next tile.
//
//   before    copy K(first); commit
//   each      wait; copy V; commit;         ... products of K ...
//             wait; copy the next K; commit; ... products of V ...
//
// This takes half the space and one barrier more. A loop whose loads are all first used in one
// place cannot relay: it copies, waits and uses.
#include <algorithm>
#include <map>
#include <vector>

#include <fmt/format.h>

#include "codegen/analysis/warp_partition.h"
#include "codegen/instructions/instruction.h"
#include "codegen/layout/register_layouts.h"
#include "codegen/passes/issued_loads.h"
#include "codegen/passes/kept_operands.h"
#include "codegen/passes/loop_tiles.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"
#include "dsl/error.h"

namespace flashcore {
namespace {

using namespace ir;

struct RingLoad {
  Op load;
  BufferId buffer;
  BlockId loop;  ///< the region around the load, if that is a loop's
};

class Pipeliner {
 public:
  Pipeliner(Function& f, const Schedule& schedule) : f_(f), schedule_(schedule) {}

  void run() {
    for (OpId id : std::vector(f_[f_.body].ops)) {
      if (is_copied(f_, f_[id])) issue_load(id);
      if (f_[id].code == OpCode::dot) wait_before(id);
      if (f_[id].code == OpCode::loop) pipeline_loop(id);
    }
  }

 private:
  /// Whether an op is a product that reads a tile.
  [[nodiscard]] bool multiplies(const Op& op, ValueId tile) const {
    return op.code == OpCode::dot && (operand_root(f_, op.operands[0]).value == tile ||
                                      operand_root(f_, op.operands[1]).value == tile);
  }

  BufferId buffer_for(const Op& load, int stages) {
    Buffer channel =
        channel_for(f_, load, asynchronous() ? Transport::cp_async : Transport::vector, stages);
    for_each_op(f_, f_.body, [&](const Op& op, BlockId) {
      if (multiplies(op, load.results[0]))
        channel.pitch = instruction_of(op).pitch(channel.columns);
    });
    return f_.add_buffer(std::move(channel));
  }

  /// Copies into the only slot of a buffer, or into `slot` when `tile` of the loop's axis exists.
  void append_copy(Builder& b, const RingLoad& load, const std::vector<ValueId>& operands) {
    Op copy{.code = OpCode::issue,
            .operands = operands,
            .tensor = load.load.tensor,
            .buffer = load.buffer};
    issue_positions(f_, copy, load.load, /*as_box=*/false,
                    [&](ValueId value) { return load.loop && made_in(f_, load.loop, value); });
    b.at(load.load.where).append(std::move(copy));
  }

  /// Turns the load itself into the reading of a slot, in place, so that its value stays.
  void read_from(const RingLoad& load, ValueId slot) {
    Op& read = *f_.definition(load.load.results[0]);
    read.code = OpCode::read_slot;
    read.tensor = {};
    read.coordinates.clear();
    read.buffer = load.buffer;
    read.operands = {slot};
  }

  // ---- outside loops

  void issue_load(OpId id) {
    const RingLoad load{f_[id], buffer_for(f_[id], 1), {}};
    Builder b = before(f_, f_.body, id);
    append_copy(b, load, {});
    read_from(load, b.integer(0));
    uncommitted_ = true;
  }

  /// Before a product outside loops: everything issued so far must have completed.
  void wait_before(OpId id) {
    if (!std::exchange(uncommitted_, false)) return;
    Builder b = before(f_, f_.body, id);
    append_commit(b);
    append_wait(b, 0);
  }

  // Copies by loads and stores are over when they are done: nothing is committed or waited for.

  [[nodiscard]] bool asynchronous() const { return schedule_.copy == CopyInstruction::cp_async; }
  void append_commit(Builder& b) const {
    if (asynchronous()) b.append({.code = OpCode::commit});
  }
  void append_wait(Builder& b, int pending) const {
    if (asynchronous()) b.append({.code = OpCode::wait, .pending = pending});
  }

  // ---- loops

  std::vector<RingLoad> collect_loads(const Op& loop) {
    std::vector<RingLoad> loads;
    for (OpId id : f_[loop.body].ops) {
      const Op op = f_[id];
      if (op.code == OpCode::loop &&
          any_op(f_, op.body, [&](const Op& inner) { return is_copied(f_, inner); }))
        refuse_inner_loop(f_, op);
      if (!is_copied(f_, op)) continue;
      for (const Coordinate& c : op.coordinates)
        if (c.value && !is_computed(f_, c) && made_in(f_, loop.body, c.value))
          throw SpecError(
              {fmt::format("load of {} at a position computed in the loop", f_[op.tensor].name),
               "copies are issued iterations ahead, when that position is not known yet",
               "compute it from parallel axes and scalars outside the loop", op.where});
      loads.push_back({op, buffer_for(op, schedule_.stages), loop.body});
    }
    return loads;
  }

  /// The loop being pipelined: its bounds, as values known before it.
  struct LoopPlan {
    OpId id;
    Op loop;
    std::vector<RingLoad> loads;
    LoopTiles tiles;
  };

  void pipeline_loop(OpId id) {
    LoopPlan plan{id, f_[id], collect_loads(f_[id]), {}};
    if (plan.loads.empty()) {  // it may still hold products of tiles loaded before it
      if (holds(f_, plan.loop.body, OpCode::dot)) wait_before(id);
      return;
    }
    // Copies ahead share their group; without them a loop of no iterations would commit nothing at
    // all.
    const bool one_group =
        !schedule_.keep_operands && (schedule_.stages > 1 || relays(legs_of(plan)));
    Builder front = before(f_, f_.body, id);
    if (std::exchange(uncommitted_, false) && !one_group) append_commit(front);
    plan.tiles = LoopTiles(front, plan.loop);
    if (schedule_.stages == 1)
      relay(front, plan);
    else
      issue_first_copies(front, plan);
    Builder end = behind(f_, f_.body, id);
    append_wait(end, 0);
  }

  void issue_first_copies(Builder& front, const LoopPlan& plan) {
    const BlockId body = plan.loop.body;
    const int ahead = schedule_.stages - 1;
    for (int s = 0; s < ahead; ++s) {
      const ValueId tile = tile_after_start(front, plan.tiles, s), slot = front.integer(s);
      append_group(front, plan.loads, {tile, slot, plan.tiles.exists(front, tile)});
    }
    const ValueId slot_start = front.integer(0);
    keep_operands(front, plan.loop, ahead);

    const ValueId slot = add_carried(f_, plan.id, slot_start, "slot");
    Builder top(f_, body, 0);
    append_wait(top, ahead - 1);
    const ValueId next = tile_ahead(top, plan, ahead);
    const ValueId freed = step_slot(top, slot, 0, "freed_slot");
    append_group(top, plan.loads, {next, freed, plan.tiles.exists(top, next)});
    for (const RingLoad& load : plan.loads) read_from(load, slot);
    Builder bottom(f_, body, f_[body].ops.size() - 1);
    const ValueId next_slot = step_slot(bottom, slot, ahead, "next_slot");
    last_of(f_, body).operands.push_back(next_slot);
  }

  void relay(Builder& front, const LoopPlan& plan) {
    const BlockId body = plan.loop.body;
    const std::vector<Leg> legs = legs_of(plan);
    const bool relaying = relays(legs);
    const ValueId slot = front.integer(0), tile = f_[body].arguments[0];
    if (relaying) {
      const ValueId first = tile_after_start(front, plan.tiles, 0);
      append_group(front, legs.front().loads, {first, slot, plan.tiles.exists(front, first)});
    } else {
      Builder top(f_, body, 0);
      append_group(top, plan.loads, {tile, slot});
      append_wait(top, 0);
    }
    keep_operands(front, plan.loop, relaying ? 1 : 0);
    for (std::size_t leg = legs.size(); relaying && leg-- > 0;) {
      Builder b(f_, body, legs[leg].first_use);
      append_wait(b, 0);
      if (leg + 1 < legs.size()) {
        append_group(b, legs[leg + 1].loads, {tile, slot});
      } else {
        const ValueId next = tile_ahead(b, plan, 1);
        append_group(b, legs.front().loads, {next, slot, plan.tiles.exists(b, next)});
      }
    }
    for (const RingLoad& load : plan.loads) read_from(load, slot);
  }

  /// Loads whose tiles are first used by the same product.
  struct Leg {
    std::size_t first_use, last_use;  ///< positions of products in the loop's body
    std::vector<RingLoad> loads;
  };

  /// In the order of their first uses.
  [[nodiscard]] std::vector<Leg> legs_of(const LoopPlan& plan) const {
    std::vector<Leg> legs;
    const auto& ops = f_[plan.loop.body].ops;
    for (const RingLoad& load : plan.loads) {
      std::size_t first = ops.size(), last = 0;
      for (std::size_t i = 0; i < ops.size(); ++i) {
        if (!multiplies(f_[ops[i]], load.load.results[0])) continue;
        first = std::min(first, i);
        last = i;
      }
      auto leg = std::ranges::find(legs, first, &Leg::first_use);
      if (leg == legs.end()) leg = legs.insert(leg, {first, last, {}});
      leg->loads.push_back(load);
      leg->last_use = std::max(leg->last_use, last);
    }
    std::ranges::sort(legs, {}, &Leg::first_use);
    return legs;
  }

  /// The next tile starts while the last leg's products run, so the first leg's must be over by then.
  static bool relays(const std::vector<Leg>& legs) {
    return legs.size() > 1 && legs.front().last_use < legs.back().first_use;
  }

  void append_group(Builder& b, const std::vector<RingLoad>& loads,
                    const std::vector<ValueId>& operands) {
    for (const RingLoad& load : loads) append_copy(b, load, operands);
    append_commit(b);
  }

  /// The tile of iteration `n`, and the one `n` iterations after the current one.
  static ValueId tile_after_start(Builder& b, const LoopTiles& tiles, int n) {
    const bool counts_up = !tiles.scan && !tiles.descending;
    return counts_up ? b.add(tiles.begin, b.integer(n)) : tiles.behind(b, tiles.in_front(b), n + 1);
  }
  ValueId tile_ahead(Builder& b, const LoopPlan& plan, int n) {
    return named(f_, plan.tiles.behind(b, f_[plan.loop.body].arguments[0], n), "next_tile");
  }

  /// One slot on or back around the ring; `edge` is the slot that wraps. Two slots just alternate.
  ValueId step_slot(Builder& b, ValueId slot, int edge, const char* name) {
    const int stages = schedule_.stages;
    ValueId next;
    if (stages == 2) {
      next = b.sub(b.integer(1), slot);
    } else {
      const ValueId wraps = b.elementwise(OpCode::eq, {slot, b.integer(edge)});
      const ValueId one = b.integer(1);
      const ValueId stepped = edge == 0 ? b.sub(slot, one) : b.add(slot, one);
      next = b.where(wraps, b.integer(stages - 1 - edge), stepped);
    }
    return named(f_, next, name);
  }

  /// Left operands that the loop does not change move into registers once their copies have
  /// completed.
  void keep_operands(Builder& b, const Op& loop, int pending) {
    if (schedule_.keep_operands) keep_left_operands(b, loop, [&] { append_wait(b, pending); });
  }

  Function& f_;
  const Schedule& schedule_;
  bool uncommitted_ = false;  ///< copies outside loops that belong to no group yet
};

}  // namespace

void pipeline_loads(Function& f, const PassContext& context) {
  if (context.schedule.copy == CopyInstruction::tma) return;
  const bool computed =
      std::ranges::any_of(f.ops, [&](const Op& op) { return has_computed_positions(f, op); });
  Pipeliner(f, context.schedule).run();
  if (computed) remove_dead_ops(f);  // the positions of tiles that are copied
}

}  // namespace flashcore
