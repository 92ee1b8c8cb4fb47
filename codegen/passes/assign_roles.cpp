// With copies by the copy engine, a block's warps part: the producer fills rings, the consumers
// compute.
//
//   segments, scans and what they need    stay in front: every warp does them, once
//   init_mbarriers ; barrier              before anyone fills a ring or waits for it
//   role producer  { if %first { what its loads need: scalars, loops without carried values,
//                                and acquire ; issue in the place of every load, with a region
//                                that looks its positions up where they are computed } }
//   role consumers { everything else, with wait where a load's tile is first used }
//
// Its channel is a ring, a queue: the n-th wait gets what the n-th issue brings. One that is told
// the number of its tile has the rows beyond a ragged axis cleared. A load outside loops has a ring
// of one slot, so that the next tile of a persistent block may be asked for as soon as this one's
// has been read.
//
// A role carries which warps it has, and how many registers a thread of them gets. One thread of
// the producer does its work. With two `producer_warps` there are two producers, and the n-th load of a loop
// is the work of one or of the other; loads outside loops are that of the first. In a block without a producer
// the consumers begin with that work (refill_slots says where they go on with it).
//
// Where blocks of a cluster give each other values, each says that it has begun, and every role
// waits for all the others to have: no block writes to one that has not begun, and none has come to
// its end while another waits for it to begin. Where they share what their loops load, all meet in
// the place of the block's barrier: a ring is then filled and released from all of them.
#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "codegen/analysis/inside_axis.h"
#include "codegen/analysis/product_stages.h"
#include "codegen/analysis/visit.h"
#include "codegen/layout/register_split.h"
#include "codegen/passes/cluster_loads.h"
#include "codegen/passes/copy_ops.h"
#include "codegen/passes/issued_loads.h"
#include "codegen/passes/kept_operands.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"
#include "dsl/error.h"

namespace flashcore {
namespace {

using namespace ir;

class RoleAssignment {
 public:
  RoleAssignment(Function& f, const PassContext& context)
      : f_(f),
        context_(context),
        schedule_(context.schedule),
        cluster_loads_(f, schedule_.multicast_blocks) {}

  void run() {
    const std::vector<OpId> program = std::move(f_[f_.body].ops);
    in_front_ = slice(program, [&](const Op& op) {
      const bool constant = op.code == OpCode::convert && constant_of(f_, op.operands[0]);
      return op.code == OpCode::scan_tiles || op.code == OpCode::segment || constant;
    });
    if (schedule_.persistent && std::ranges::any_of(in_front_, has_code(f_, OpCode::scan_tiles)))
      throw ScheduleError({fmt::format("persistent = true for {}", f_.name),
                           "a block scans only once for tiles with visible keys",
                           "persistent = false"});
    check_positions();
    const BlockId consumers = f_.add_block();
    std::vector<OpId> front;
    for (OpId id : program) (in_front_.count(id) ? front : f_[consumers].ops).push_back(id);
    add_rings(consumers, schedule_.outer_stages);
    if (schedule_.multicast_blocks > 1 &&
        std::ranges::none_of(f_.buffers, [](const Buffer& ring) { return ring.blocks > 1; }))
      throw ScheduleError(
          {fmt::format("multicast_blocks = {} for {}", schedule_.multicast_blocks, f_.name),
           "the tiles that its loops load depend on the block's output tile",
           "multicast_blocks = 1"});
    cluster_loads_.join_bounds(consumers);
    const std::vector<OpId> rest = f_[consumers].ops;
    needed_ = slice(rest, [&](const Op& op) { return fills(op); });
    if (needed_.empty())
      throw ScheduleError({fmt::format("copy = tma for {}", f_.name),
                           "it has no product whose operands the copy engine could load",
                           "instruction = mma_m16n8k16 and copy = cp_async"});
    std::vector<BlockId> producers;
    for (int i = 0; i < schedule_.producer_warps; ++i) {
      producers.push_back(f_.add_block());
      copier_.emplace(f_);
      for (OpId id : rest) produce(id, producers.back(), i);
    }
    if (schedule_.keep_operands) keep_operands(consumers);
    consume(consumers, {});
    cluster_loads_.pass_other_tiles(consumers);
    f_[f_.body].ops = front;
    Builder b(f_, f_.body);
    b.append({.code = OpCode::init_mbarriers});
    if (schedule_.cluster_splits > 1) b.append({.code = OpCode::enter_cluster});
    const bool shares = schedule_.multicast_blocks > 1;
    b.append({.code = shares ? OpCode::cluster_sync : OpCode::barrier});
    const int warps = schedule_.consumer_threads() / 32;
    const RegisterSplit split = register_split(schedule_);
    if (schedule_.producer)
      append_producers(b, producers, warps, split.producer);
    else
      begin_with(consumers, f_[producers[0]].ops);
    append_role(b, "consumers", consumers, 0, warps, split.consumer);
    remove_dead_ops(f_);
  }

 private:
  /// What stands in front serves all positions that a block goes through.
  void check_positions() const {
    if (schedule_.positions_per_block == 1) return;
    const AxisId axis = last_axis_of(f_, AxisKind::parallel);
    const auto asks = [&](const Op& op) { return needs_position(f_, op, axis); };
    for (OpId id : in_front_)
      if (any_op_of(f_, f_[id], asks))
        throw ScheduleError(
            {fmt::format("positions_per_block = {} for {}", schedule_.positions_per_block, f_.name),
             fmt::format("a block scans once for tiles with visible keys, and here they "
                         "depend on the position along {}",
                         f_[axis].name),
             "positions_per_block = 1", f_[id].where});
  }

  [[nodiscard]] bool fills(const Op& op) const {
    return any_op_of(f_, op, [&](const Op& inner) { return is_copied(f_, inner); });
  }

  /// The ops among `ops` that `wanted` picks, and those that make what these read: for a loop its
  /// bounds and where its loads lie, not what it carries.
  template <class Wanted>
  std::set<OpId> slice(const std::vector<OpId>& ops, Wanted wanted) const {
    std::set<OpId> found;
    std::set<ValueId> read;
    const auto note_all = [&](const Op& op) {
      for_each_use(op, [&](const ValueId& v) { read.insert(v); });
    };
    for (auto id = ops.rbegin(); id != ops.rend(); ++id) {
      const Op& op = f_[*id];
      const bool makes = std::any_of(op.results.begin(), op.results.end(),
                                     [&](ValueId v) { return read.count(v) > 0; });
      if (!makes && !wanted(op)) continue;
      found.insert(*id);
      if (op.code == OpCode::loop) {
        for (const ValueId bound : cluster_loads_.bounds_of_loads(*id)) read.insert(bound);
        for_each_op(f_, op.body, [&](const Op& inner, BlockId) {
          if (is_copied(f_, inner)) note_positions(inner, op.body, read);
        });
      } else {
        note_all(op);
        if (op.body) for_each_op(f_, op.body, [&](const Op& inner, BlockId) { note_all(inner); });
      }
    }
    return found;
  }

  /// What the op reads, and what that is made of in the loop around it.
  void note_positions(const Op& op, BlockId loop, std::set<ValueId>& read) const {
    for_each_use(op, [&](const ValueId& v) {
      const Op* made_by = f_.definition(v);
      if (read.insert(v).second && made_by && made_in(f_, loop, v))
        note_positions(*made_by, loop, read);
    });
  }

  /// A ring for every load: `stages` slots in loops.
  void add_rings(BlockId block, int stages, bool in_loop = false) {
    for (OpId id : f_[block].ops) {
      const Op op = f_[id];
      if (op.code == OpCode::loop) add_rings(op.body, schedule_.stages, true);
      if (!is_copied(f_, op)) continue;
      if (f_[op.results[0]].type.axes.size() == 1) continue;
      Buffer ring = channel_for(f_, op, Transport::tma, stages);
      const int stride = whole_periods(ring.slot_bytes());
      if (stages > 1 && stride != ring.slot_bytes()) ring.stride = stride;
      if (in_loop) ring.blocks = cluster_loads_.blocks_of(op);
      f_[id].buffer = f_.add_buffer(std::move(ring));
    }
    for (OpId id : f_[block].ops)
      if (is_copied(f_, f_[id]) && !f_[id].buffer) f_[id].buffer = add_vectors(block, f_[id]);
  }

  /// The channel of a vector that comes with the first tile of its loop, behind it in its slot.
  BufferId add_vectors(BlockId block, const Op& load) {
    const auto tile = std::ranges::find_if(f_[block].ops, [&](OpId id) {
      return is_copied(f_, f_[id]) && f_[id].buffer && !f_[f_[id].buffer].is_vector();
    });
    if (tile == f_[block].ops.end()) throw InternalError("a vector without a tile to come with");
    const BufferId host = f_[*tile].buffer;
    Buffer vector = channel_for(f_, load, Transport::tma, f_[host].stages);
    vector.beside = host;
    vector.offset = f_[host].slot_bytes();
    for (const Buffer& other : f_.buffers)
      if (other.beside == host) vector.offset += box_places(other.slot_bytes());
    vector.stride = f_[host].stride =
        whole_periods(vector.offset + box_places(vector.slot_bytes()));
    for (Buffer& other : f_.buffers)
      if (other.beside == host) other.stride = vector.stride;
    return f_.add_buffer(std::move(vector));
  }

  /// The loads of tiles in a loop, those first whose tiles the consumers wait for first: with one slot
  /// for each tile, they release none before the next one that they wait for has come.
  [[nodiscard]] std::vector<OpId> loads_by_first_use(BlockId loop) const {
    const std::vector<OpId>& ops = f_[loop].ops;
    std::vector<std::pair<std::size_t, OpId>> loads;
    for (const OpId id : ops) {
      const Op& load = f_[id];
      if (load.code == OpCode::loop && fills(load)) refuse_inner_loop(f_, load);
      if (!is_copied(f_, load) || f_[load.buffer].beside) continue;
      const auto uses = [&](OpId other) {
        return any_op_of(f_, f_[other], [&](const Op& op) { return reads(op, load.results[0]); });
      };
      loads.emplace_back(std::ranges::find_if(ops, uses) - ops.begin(), id);
    }
    std::ranges::stable_sort(loads, {}, &std::pair<std::size_t, OpId>::first);
    std::vector<OpId> sorted;
    for (const auto& [first_use, id] : loads) sorted.push_back(id);
    return sorted;
  }

  /// Has a producer do its part of what an op asks for.
  void produce(OpId id, BlockId target, int producer) {
    if (!needed_.count(id)) return;
    const Op op = f_[id];
    if (is_copied(f_, op)) {
      if (producer > 0) return;
      append_acquire(op, target);
      return append_issue(op, {}, target);
    }
    if (op.code != OpCode::loop)
      return Builder(f_, target).place(schedule_.producer ? copier_->copy(id) : id);
    Op loop = op;
    loop.operands = cluster_loads_.bounds_of_loads(id);
    for (ValueId& bound : loop.operands) bound = copier_->renamed(bound);
    loop.results.clear();
    loop.body = f_.add_block();
    f_.add_argument(loop.body, {DType::i32, {}}, f_[f_[op.body].arguments[0]].name);
    int tiles = 0;
    for (OpId inner : loads_by_first_use(op.body)) {
      const Op load = f_[inner];
      if (tiles++ % schedule_.producer_warps != producer) continue;
      append_acquire(load, loop.body);
      for (OpId vector : std::vector(f_[op.body].ops))
        if (is_copied(f_, f_[vector]) && f_[f_[vector].buffer].beside == load.buffer)
          append_issue(f_[vector], op.body, loop.body);
      append_issue(load, op.body, loop.body);
    }
    Builder(f_, loop.body).append({.code = OpCode::yield});
    Builder(f_, target).at(op.where).append(std::move(loop));
  }

  /// Puts ops, some of them the block's own, in front of all others.
  void begin_with(BlockId block, const std::vector<OpId>& first) {
    auto& ops = f_[block].ops;
    std::erase_if(ops, [&](OpId id) { return std::ranges::count(first, id) > 0; });
    ops.insert(ops.begin(), first.begin(), first.end());
  }

  /// Without a producer the role that issues the copies reads them, and knows when a slot is empty.
  void append_acquire(const Op& load, BlockId target) {
    if (schedule_.producer)
      Builder(f_, target).append({.code = OpCode::acquire, .buffer = load.buffer});
  }

  /// `loop` is the region around the load, if that is a loop's.
  void append_issue(Op load, BlockId loop, BlockId target) {
    Op issue{.code = OpCode::issue, .tensor = load.tensor, .buffer = load.buffer};
    issue_positions(f_, issue, load, /*as_box=*/true, [&](ValueId value) {
      return loop &&
             (made_in(f_, loop, value) || std::ranges::count(f_[loop].arguments, value) > 0);
    });
    const auto rename = [&](ValueId& v) { v = copier_->renamed(v); };
    for_each_use(issue, rename);
    if (issue.body)
      for (const OpId id : f_[issue.body].ops) for_each_use(f_[id], rename);
    Builder(f_, target).at(load.where).append(std::move(issue));
  }

  /// Two producers divide a warpgroup, whose threads get their registers together. The second one stands behind the
  /// first in the program, which hands it the tiles that it draws: the reference evaluates roles in their order.
  void append_producers(Builder& b, const std::vector<BlockId>& producers, int first_warp,
                        int registers) {
    constexpr int warps = 4;
    if (producers.size() == 1)
      return append_role(b, "producer", by_first_thread(f_[producers[0]].ops), first_warp, warps,
                         registers);
    Builder in(f_, f_.add_block());
    append_role(in, "producer", by_first_thread(f_[producers[0]].ops), first_warp + warps / 2,
                warps / 2, 0);
    append_role(in, "second_producer", by_first_thread(f_[producers[1]].ops), first_warp, warps / 2,
                0);
    append_role(b, "producers", in.block(), first_warp, warps, registers);
  }

  void append_role(Builder& b, const char* name, BlockId body, int first_warp, int warps,
                   int registers) {
    const int at_start = registers_at_start(schedule_.threads(), schedule_.blocks_per_processor);
    b.append({.code = OpCode::role,
              .body = body,
              .name = name,
              .first_warp = first_warp,
              .warps = warps,
              .registers = registers,
              .registers_at_start = registers ? at_start : 0});
  }

  /// A block in which one thread of a role does this work.
  BlockId by_first_thread(const std::vector<OpId>& work) {
    Builder b(f_, f_.add_block());
    const ValueId first = b.make({.code = OpCode::first_thread}, {DType::i1, {}});
    build_if(b, first, region_of(work));
    return b.block();
  }

  /// Loads become waits; in a loop, which is over `axis`, each stands in front of the first product
  /// that reads it.
  void consume(BlockId block, AxisId axis) {
    rewrite_ops(f_, block, [&](Builder& b, OpId id) {
      if (const Op op = f_[id]; op.code == OpCode::loop) consume(op.body, op.axis);
      if (!is_copied(f_, f_[id])) return;
      if (const BufferId host = f_[f_[id].buffer].beside) {
        const auto tile = std::ranges::find_if(
            f_[block].ops, [&](OpId other) { return other != id && f_[other].buffer == host; });
        f_[id].operands = {f_[*tile].results[0]};
      } else if (const AxisId rows = f_[f_[id].results[0]].type.axes[0];
                 must_clear(f_[id], rows) || (f_[rows].ragged && hosts_vector(f_[id].buffer))) {
        const ValueId tile = rows == axis ? f_[block].arguments[0] : number_of_tile(b, rows);
        f_[id].operands = {tile};
      }
      Op& wait = f_[id];
      wait.code = f_[wait.buffer].beside ? OpCode::beside : OpCode::wait;
      wait.tensor = {};
      wait.coordinates.clear();
    });
    // The addresses of vectors first: each is computed from the address of a tile, so that the wait
    // for the tile has to stand in front of it.
    for (const OpCode code : {OpCode::beside, OpCode::wait})
      for (OpId wait : std::vector(f_[block].ops)) {
        if (f_[wait].code != code) continue;
        const std::vector<OpId> readers = readers_of(f_, block, f_[wait].results[0]);
        std::erase(f_[block].ops, wait);
        if (!readers.empty()) before(f_, block, readers.front()).place(wait);
      }
  }

  void keep_operands(BlockId block) {
    bool kept = false;
    for (OpId id : std::vector(f_[block].ops)) {
      if (f_[id].code != OpCode::loop) continue;
      Builder b = before(f_, block, id);
      kept = keep_left_operands(b, f_[id]) || kept;
    }
    if (!kept)
      context_.note_refusal(
          "keep_operands = true",
          "no product in a loop has a left operand that the loop does not change");
  }

  /// Whether a load brings rows that lie beyond the axis, and these come into a sum.
  [[nodiscard]] bool must_clear(const Op& load, AxisId rows) const {
    const bool may_exceed =
        f_[rows].ragged || (has_computed_positions(f_, load) && may_end_in_tile(rows));
    return may_exceed && sums_rows_beyond_axis(f_, load.results[0]);
  }

  [[nodiscard]] bool hosts_vector(BufferId channel) const {
    return std::ranges::any_of(f_.buffers,
                               [&](const Buffer& other) { return other.beside == channel; });
  }

  /// Of the tile of an axis that the block is at.
  ValueId number_of_tile(Builder& b, AxisId axis) {
    const ValueId length = b.integer(f_[axis].tile);
    return b.elementwise(OpCode::quotient, {b.tile_begin(axis), length});
  }

  [[nodiscard]] bool may_end_in_tile(AxisId axis) const {
    const Extent& extent = f_[axis].extent;
    const int tile = f_[axis].tile;
    return f_[axis].may_overrun() && (extent.times % tile != 0 || extent.plus % tile != 0);
  }

  Function& f_;
  const PassContext& context_;
  const Schedule& schedule_;
  std::optional<OpCopier> copier_;  ///< copies what a producer needs; one for each producer
  ClusterLoads cluster_loads_;
  std::set<OpId> in_front_, needed_;
};

}  // namespace

void assign_roles(Function& f, const PassContext& context) {
  if (context.schedule.copy != CopyInstruction::tma) return;
  RoleAssignment(f, context).run();
}

}  // namespace flashcore
