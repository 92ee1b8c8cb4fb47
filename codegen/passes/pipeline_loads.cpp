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
#include <vector>

#include "codegen/analysis/product_stages.h"
#include "codegen/instructions/instruction.h"
#include "codegen/passes/channels.h"
#include "codegen/passes/issued_positions.h"
#include "codegen/passes/keep_operands.h"
#include "codegen/passes/loop_tiles.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

struct RingLoad {
  ValueId value;
  Op load;
  BufferId buffer;
  BlockId loop;  ///< the region around the load, if that is a loop's
};

class Pipeliner {
 public:
  Pipeliner(Function& f, const Schedule& schedule) : f_(f), schedule_(schedule) {}

  void run() {
    for (std::size_t i = 0; i < f_[f_.body].ops.size(); ++i) {
      const OpId id = f_[f_.body].ops[i];
      switch (f_[id].code) {
        case OpCode::load:
          if (in_shared(f_[id].results[0])) issue_load(i);
          break;
        case OpCode::dot:
          i += wait_before(i);
          break;
        case OpCode::loop:
          i = pipeline_loop(i);
          break;
        default:
          break;
      }
    }
  }

 private:
  [[nodiscard]] bool in_shared(ValueId value) const {
    return f_[value].layout.space == Space::shared;
  }

  /// A product that reads a tile.
  [[nodiscard]] const Op* product_of(ValueId tile) const {
    const Op* found = nullptr;
    for_each_op(f_, f_.body, [&](const Op& op, BlockId) {
      if (op.code == OpCode::dot &&
          (viewed(f_, op.operands[0]) == tile || viewed(f_, op.operands[1]) == tile))
        found = &op;
    });
    return found;
  }

  BufferId buffer_for(const Op& load, int stages) {
    Buffer channel =
        channel_for(f_, load, asynchronous() ? Transport::cp_async : Transport::vector, stages);
    if (const Op* product = product_of(load.results[0]))
      channel.pitch = instruction_of(*product).pitch(channel.columns);
    return f_.add_buffer(std::move(channel));
  }

  /// Copies into the only slot of a buffer, or into `slot` when `tile` of the loop's axis exists.
  void append_copy(Builder& b, const RingLoad& load, const std::vector<ValueId>& operands) {
    Op copy{.code = OpCode::issue,
            .operands = operands,
            .tensor = load.load.tensor,
            .buffer = load.buffer};
    issue_positions(f_, copy, load.load,
                    [&](ValueId value) { return load.loop && made_in(f_, load.loop, value); });
    b.at(load.load.where).append(std::move(copy), {});
  }

  /// Turns the load itself into the reading of a slot, in place, so that its value stays.
  static void make_read(Op& load, BufferId buffer, ValueId slot) {
    load.code = OpCode::read_slot;
    load.tensor = {};
    load.coordinates.clear();
    load.buffer = buffer;
    load.operands = {slot};
  }

  // ---- outside loops

  void issue_load(std::size_t& position) {
    const OpId id = f_[f_.body].ops[position];
    const Op load = f_[id];
    const BufferId buffer = buffer_for(load, 1);
    ValueId slot;
    position += insert_before(f_, f_.body, position, load.where, [&](Builder& b) {
      append_copy(b, {load.results[0], load, buffer, {}}, {});
      slot = b.constant(0, DType::i32);
      f_[slot].layout.space = Space::uniform;
    });
    make_read(f_[id], buffer, slot);
    uncommitted_ = true;
  }

  /// Before a product outside loops: everything issued so far must have completed.
  std::size_t wait_before(std::size_t position) {
    if (!uncommitted_) return 0;
    uncommitted_ = false;
    return insert_before(f_, f_.body, position, {}, [&](Builder& b) {
      append_commit(b);
      append_wait(b, 0);
    });
  }

  // Copies by loads and stores are over when they are done: nothing is committed or waited for.

  [[nodiscard]] bool asynchronous() const { return schedule_.copy == CopyInstruction::cp_async; }
  void append_commit(Builder& b) const {
    if (asynchronous()) b.append({.code = OpCode::commit}, {});
  }
  void append_wait(Builder& b, int pending) const {
    if (asynchronous()) b.append({.code = OpCode::wait, .pending = pending}, {});
  }

  // ---- loops

  std::vector<RingLoad> collect_loads(const Op& loop) {
    std::vector<RingLoad> loads;
    for (OpId id : f_[loop.body].ops) {
      const Op& op = f_[id];
      if (op.code == OpCode::loop && any_op(f_, op.body, [&](const Op& inner) {
            return inner.code == OpCode::load && in_shared(inner.results[0]);
          }))
        refuse_inner_loop(f_, op);
      if (op.code != OpCode::load || !in_shared(op.results[0])) continue;
      for (const Coordinate& c : op.coordinates)
        if (c.value && !is_computed(f_, c) && made_in(f_, loop.body, c.value))
          refuse_position_of_iteration(f_, op);
      const Op load = op;
      loads.push_back({load.results[0], load, buffer_for(load, schedule_.stages), loop.body});
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

  /// Returns the position of the last op it placed.
  std::size_t pipeline_loop(std::size_t position) {
    LoopPlan plan{f_[f_.body].ops[position], f_[f_[f_.body].ops[position]], {}, {}};
    plan.loads = collect_loads(plan.loop);
    const Op& loop = plan.loop;
    if (plan.loads.empty())  // it may still hold products of tiles loaded before it
      return position + (holds(f_, loop.body, OpCode::dot) ? wait_before(position) : 0);
    // Copies ahead share their group; without them a loop of no iterations would commit nothing at
    // all.
    const bool one_group =
        !schedule_.keep_operands && (schedule_.stages > 1 || relays(legs_of(plan)));
    position += insert_before(f_, f_.body, position, loop.where, [&](Builder& b) {
      if (uncommitted_ && !one_group) append_commit(b);
      plan.tiles = LoopTiles(b, loop);
      mark_uniform(b);
    });
    uncommitted_ = false;
    f_[f_[loop.body].arguments[0]].layout.space = Space::uniform;
    position = schedule_.stages == 1 ? relay(plan, position) : issue_first_copies(plan, position);
    return position + insert_before(f_, f_.body, position + 1, loop.where,
                                    [&](Builder& b) { append_wait(b, 0); });
  }

  std::size_t issue_first_copies(const LoopPlan& plan, std::size_t position) {
    const Op& loop = plan.loop;
    const int ahead = schedule_.stages - 1;
    ValueId slot_start;
    position += insert_before(f_, f_.body, position, loop.where, [&](Builder& b) {
      for (int s = 0; s < ahead; ++s) {
        const ValueId tile = tile_after_start(b, plan, s), slot = b.constant(s, DType::i32);
        append_group(b, plan.loads, {tile, slot, plan.tiles.exists(b, tile)});
      }
      slot_start = b.constant(0, DType::i32);
      mark_uniform(b);
    });
    position += keep_operands(loop, position, ahead);

    const ValueId slot = add_carried(f_, plan.id, slot_start, "slot");
    f_[slot].layout.space = Space::uniform;
    insert_before(f_, loop.body, 0, loop.where, [&](Builder& b) {
      append_wait(b, ahead - 1);
      const ValueId next = tile_ahead(b, plan, ahead), freed = previous_slot(b, slot);
      append_group(b, plan.loads, {next, freed, plan.tiles.exists(b, next)});
      mark_uniform(b);
    });
    for (const RingLoad& load : plan.loads)
      make_read(*f_.definition(load.value), load.buffer, slot);
    ValueId next_slot;
    insert_before(f_, loop.body, f_[loop.body].ops.size() - 1, loop.where, [&](Builder& b) {
      next_slot = following_slot(b, slot);
      mark_uniform(b);
    });
    yield_of(f_, loop).operands.push_back(next_slot);
    return position;
  }

  std::size_t relay(const LoopPlan& plan, std::size_t position) {
    const Op& loop = plan.loop;
    const std::vector<LoadLeg> legs = legs_of(plan);
    const bool relaying = relays(legs);
    ValueId slot;
    position += insert_before(f_, f_.body, position, loop.where, [&](Builder& b) {
      slot = b.constant(0, DType::i32);
      if (relaying) {
        const ValueId first = tile_after_start(b, plan, 0);
        append_group(b, of_leg(plan, legs.front()), {first, slot, plan.tiles.exists(b, first)});
      }
      mark_uniform(b);
    });
    position += keep_operands(loop, position, relaying ? 1 : 0);

    const ValueId tile = f_[loop.body].arguments[0];
    if (!relaying) {
      insert_before(f_, loop.body, 0, loop.where, [&](Builder& b) {
        append_group(b, plan.loads, {tile, slot});
        append_wait(b, 0);
      });
    }
    for (std::size_t leg = legs.size(); relaying && leg-- > 0;) {
      insert_before(f_, loop.body, legs[leg].first_use, loop.where, [&](Builder& b) {
        append_wait(b, 0);
        if (leg + 1 < legs.size()) {
          append_group(b, of_leg(plan, legs[leg + 1]), {tile, slot});
        } else {
          const ValueId next = tile_ahead(b, plan, 1);
          append_group(b, of_leg(plan, legs.front()), {next, slot, plan.tiles.exists(b, next)});
        }
        mark_uniform(b);
      });
    }
    for (const RingLoad& load : plan.loads)
      make_read(*f_.definition(load.value), load.buffer, slot);
    return position;
  }

  [[nodiscard]] std::vector<LoadLeg> legs_of(const LoopPlan& plan) const {
    std::vector<ValueId> tiles;
    for (const RingLoad& load : plan.loads) tiles.push_back(load.value);
    return load_legs(f_, plan.loop, tiles);
  }
  static std::vector<RingLoad> of_leg(const LoopPlan& plan, const LoadLeg& leg) {
    std::vector<RingLoad> loads;
    for (const std::size_t load : leg.loads) loads.push_back(plan.loads[load]);
    return loads;
  }

  void append_group(Builder& b, const std::vector<RingLoad>& loads,
                    const std::vector<ValueId>& operands) {
    for (const RingLoad& load : loads) append_copy(b, load, operands);
    append_commit(b);
  }

  /// The tile of iteration `n`, and the one `n` iterations after the current one.
  static ValueId tile_after_start(Builder& b, const LoopPlan& plan, int n) {
    const LoopTiles& tiles = plan.tiles;
    if (tiles.scan)
      return scanned(b, tiles,
                     tiles.descending ? tiles.end : b.sub(tiles.begin, b.constant(1, DType::i32)),
                     n + 1);
    return tiles.descending ? b.sub(tiles.end, b.constant(n + 1, DType::i32))
                            : b.add(tiles.begin, b.constant(n, DType::i32));
  }
  ValueId tile_ahead(Builder& b, const LoopPlan& plan, int n) {
    const ValueId tile = f_[plan.loop.body].arguments[0];
    if (plan.tiles.scan) return scanned(b, plan.tiles, tile, n);
    const ValueId distance = b.constant(n, DType::i32);
    const ValueId next = plan.tiles.descending ? b.sub(tile, distance) : b.add(tile, distance);
    f_[next].name = "next_tile";
    return next;
  }
  /// The tile that a loop over what a scan found visits `n` iterations after `tile`.
  static ValueId scanned(Builder& b, const LoopTiles& tiles, ValueId tile, int n) {
    for (int step = 0; step < n; ++step) {
      tile = tiles.scanned_behind(b, tile);
      b.function()[tile].name = "next_tile";
    }
    return tile;
  }

  ValueId previous_slot(Builder& b, ValueId slot) const {
    return step_slot(b, slot, 0, "freed_slot");
  }
  ValueId following_slot(Builder& b, ValueId slot) const {
    return step_slot(b, slot, schedule_.stages - 1, "next_slot");
  }
  /// One slot on or back around the ring; `edge` is the slot that wraps. Two slots just alternate.
  ValueId step_slot(Builder& b, ValueId slot, int edge, const char* name) const {
    const int stages = schedule_.stages;
    ValueId next;
    if (stages == 2) {
      next = b.sub(b.constant(1, DType::i32), slot);
    } else {
      const ValueId wraps = b.elementwise(OpCode::eq, {slot, b.constant(edge, DType::i32)});
      const ValueId one = b.constant(1, DType::i32);
      const ValueId stepped = edge == 0 ? b.sub(slot, one) : b.add(slot, one);
      next =
          b.elementwise(OpCode::where, {wraps, b.constant(stages - 1 - edge, DType::i32), stepped});
    }
    b.function()[next].name = name;
    return next;
  }

  /// Left operands loaded before the loop move into registers once their copies have completed.
  std::size_t keep_operands(const Op& loop, std::size_t position, int pending) {
    if (!schedule_.keep_operands) return 0;
    const std::vector<ValueId> kept = left_operands_of_loop(f_, loop);
    if (kept.empty()) return 0;
    return insert_before(f_, f_.body, position, loop.where, [&](Builder& b) {
      append_wait(b, pending);
      for (ValueId operand : kept) keep_left_operand(b, loop, operand);
    });
  }

  void mark_uniform(Builder& b) {
    for (OpId id : f_[b.block()].ops)
      for (ValueId result : f_[id].results)
        if (f_[result].type.is_scalar()) f_[result].layout.space = Space::uniform;
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
