// A thread must meet the others before it
//   - reads shared memory that another thread wrote (or whose asynchronous copy another waited
//   for), or
//   - writes, or starts a copy into, shared memory that another thread may still be reading or
//   writing.
// The pass walks the program in order, keeping what has happened to each buffer since its threads met
// (shared_hazards.h); buffers that share space count as one. A loop's region is walked until no iteration
// ends with more than one may start from, then from there to place its barriers: an iteration placed from
// the start of the first one would get barriers that the start of the next makes needless. It may also
// run no iteration, so that its barriers do not count for what follows. Slots of a ring need no further
// thought: an iteration's copies go into the slot whose readers the barrier at its top has just met.
//
// All threads of a block meet at its barrier. Those of a role have their own pace, and share slots of
// channels and tiles that they write for the copy engine; what all threads write in front of the roles for
// the copy engine and products in flight they fence, too:
//
//   A thread writes what the engine or products read     fence_async right behind
//   The engine or products read what threads wrote       the threads have met: those of a warpgroup,
//                                                        whose rows its own thread hands on, or all
//                                                        of the role, where the tile is for all
//   Threads release what they have read themselves,      fence_async in front, in each of them: nothing else
//   for the engine to fill                               keeps the engine behind reads that are under way
//   Threads write, or release, what the engine has read  the thread that handed it on has waited
//                                                        (drain_stores), and has met the others; a
//                                                        tile with several slots may be handed on
//                                                        once less often
//   The block's turn to add is passed on                 what the engine adds at it has been added
//                                                        (complete_stores)
//   A slot is released, or filled by who reads it        no product in flight reads it; one may read the next
//                                                        slot of the ring, which is held as well
//   A thread releases a slot for its warpgroup           all its threads have waited for the slot: a
//                                                        product has read it, or they have met
//   Threads write what products of the role have read    all of them have waited for these products,
//                                                        and have met
//   Threads read what others of the role have written   all of the role have met; and again before it
//   (partials)                                           is written anew
//   Threads write to another block of the cluster        the other blocks have begun (cluster_wait)
//   Threads read what other blocks have written          the consumers of all blocks have met
//                                                        (cluster_sync), in front of a region that
//                                                        some of them alone enter
//   A role ends whose slots other blocks of the cluster  the consumers of all blocks have come to
//   fill and release                                     their end (cluster_sync): no block writes
//                                                        to one that has left
//
// The waits are there: stage_stores and overlap_products know where they cost least. Where one is
// missing, or stands too late, the pass says so. What is written in a region behind a condition
// meets there. A role that writes to no other block waits for their beginning at its end, since the
// cluster's barrier counts all threads.
#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "codegen/analysis/ring_barriers.h"
#include "codegen/analysis/shared_use.h"
#include "codegen/analysis/warp_partition.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"
#include "codegen/passes/shared_hazards.h"
#include "dsl/error.h"

namespace flashcore {
namespace {

using namespace ir;

/// Places barriers for the threads of a block outside of roles, or for those of one role.
class BarrierPlacer {
 public:
  BarrierPlacer(Function& f, const std::set<BufferId>& asynchronous)
      : f_(f), asynchronous_(asynchronous) {}

  void order_block() {
    SharedHazards state(f_);
    walk(f_.body, state);
  }

  void order_role(OpId role) {
    is_role_ = true;
    for_each_op(f_, f_[role].body, [&](const Op& op, BlockId) {
      if (stores_tile(op)) stored_.insert(buffer_of(f_, op.operands[0]));
      if (op.code != OpCode::dot) return;
      for (std::size_t k : {0, 1})
        if (const Op* made_by =
                definition_as(f_, tile_in_shared(f_, op.operands[k]), OpCode::convert);
            made_by && made_by->buffer)
          operands_.insert(made_by->buffer);
    });
    SharedHazards state(f_);
    const BlockId body = f_[role].body;
    walk(body, state);
    Builder end(f_, body);
    // The producer releases the number of a tile, and then hands it to its consumers: when these meet
    // those of the other block, that block knows of the release.
    const auto shares = [&](const Op& op) {
      return op.code == OpCode::release && f_[op.buffer].blocks > 1 &&
             !f_[op.buffer].holds_scalars();
    };
    if (any_op(f_, body, shares)) place(end, OpCode::cluster_sync);
    if (holds(f_, f_.body, OpCode::enter_cluster)) wait_for_cluster(end, state);
    for (const BufferId buffer : stored_)
      if (state[buffer].handed_on > 0)
        fail(f_[role], fmt::format("ends while the copy engine reads {}", f_[buffer].name));
  }

 private:
  [[nodiscard]] bool stores_tile(const Op& op) const {
    return op.code == OpCode::store && f_[op.operands[0]].layout.space == Space::shared;
  }

  void walk(BlockId block, SharedHazards& state) {
    rewrite_ops(f_, block, [&](Builder& b, OpId id) {
      const Op op = f_[id];
      if (is_role_)
        order_in_role(b, id, op, state);
      else
        order_in_block(b, id, op, state);
      switch (op.code) {
        case OpCode::wait_products:
          state.wait_for_products(op.pending);
          break;
        case OpCode::wait:
          if (op.buffer) {
            state[op.buffer].awaited = true;
            state[op.buffer].held = std::min(state[op.buffer].held + 1, f_[op.buffer].stages);
          } else {
            state.wait_for_copies(op.pending);
          }
          break;
        case OpCode::barrier:
        case OpCode::meet_warpgroup:
        case OpCode::meet_role:
          state.meet(op.code);
          break;
        case OpCode::loop:
        case OpCode::tile_loop:
          walk_loop(op.body, state);
          // Every iteration asks for the next tile.
          for (const BufferId buffer : shared_use(f_, op).reads) state[buffer].read = true;
          break;
        case OpCode::if_:
          walk_condition(op, state);
          break;
        default:
          break;
      }
    });
  }

  void order_in_block(Builder& b, OpId id, const Op& op, SharedHazards& state) {
    const SharedUse use = shared_use(f_, op);
    const auto is_written = [](const BufferHazards& at) { return at.by_all; };
    const auto is_used = [](const BufferHazards& at) { return at.by_all || at.read; };
    bool meets = false;
    for (const BufferId buffer : use.reads) meets = meets || state.any(buffer, is_written);
    for (const auto* writes : {&use.writes, &use.async_writes})
      for (const BufferId buffer : *writes) meets = meets || state.any(buffer, is_used);
    if (meets) meet(b, OpCode::barrier, state);
    for (const BufferId buffer : use.reads) state[buffer].read = true;
    for (const BufferId buffer : use.writes) state[buffer].by_all = true;
    for (const BufferId buffer : use.async_writes) state[buffer].loading = true;
    if (op.code == OpCode::convert && asynchronous_.count(op.buffer)) fence_behind(b, id, state);
  }

  void order_in_role(Builder& b, OpId id, const Op& op, SharedHazards& state) {
    if (reads_given(op, state)) meet(b, OpCode::cluster_sync, state);
    switch (op.code) {
      case OpCode::convert:
        for (const BufferId buffer : shared_use(f_, op).reads) state[buffer].unfenced = true;
        if (op.blocks > 1) {
          wait_for_cluster(b, state);
          state[op.buffer].given = true;
        }
        if (!op.buffer || op.blocks > 0) break;
        before_change(b, op, op.buffer, state);
        if (!asynchronous_.count(op.buffer)) {
          state[op.buffer].by_all = true;
          break;
        }
        fence_behind(b, id, state);
        (operands_.count(op.buffer) ? state[op.buffer].by_all : state[op.buffer].by_warpgroup) =
            true;
        break;
      case OpCode::combine_partials:
        if (f_[op.operands[0]].layout.space != Space::shared) break;
        meet_writers(b, buffer_of(f_, op.operands[0]), state);
        state[buffer_of(f_, op.operands[0])].read = true;
        break;
      case OpCode::clear_rows:
        fence_behind(b, id, state);
        state[buffer_of(f_, op.operands[0])].by_all = true;
        break;
      case OpCode::store:
        if (!stores_tile(op)) break;
        meet_writers(b, buffer_of(f_, op.operands[0]), state);
        state.hand_on(op);
        break;
      case OpCode::dot:
        multiply(b, op, state);
        break;
      case OpCode::drain_stores:
      case OpCode::complete_stores:
        state.drain(stored_, op);
        break;
      case OpCode::release_turn:
        for (const BufferId buffer : stored_)
          if (state[buffer].adding)
            fail(op,
                 fmt::format("passes the turn on while the copy engine adds {}", f_[buffer].name));
        break;
      case OpCode::issue:
        if (f_[op.buffer].transport == Transport::tma) check_products(op, "fills", state);
        if (f_[op.buffer].transport == Transport::warps) fence_behind(b, id, state);
        break;
      case OpCode::release:
        check_products(op, "releases", state);
        before_change(b, op, op.buffer, state);
        fence_reads(b, op.buffer, state);
        if (state[op.buffer].awaited && releases_for_warpgroup(op.buffer))
          meet(b, OpCode::meet_warpgroup, state);
        state.release(op.buffer);
        break;
      default:
        break;
    }
  }

  /// Itself, or in a region.
  [[nodiscard]] bool reads_given(const Op& op, const SharedHazards& state) const {
    if (op.code == OpCode::cluster_read) return state[buffer_of(f_, op.operands[0])].given;
    return std::ranges::any_of(Regions(op), [&](BlockId region) {
      return std::ranges::any_of(f_[region].ops,
                                 [&](OpId inner) { return reads_given(f_[inner], state); });
    });
  }

  void wait_for_cluster(Builder& b, SharedHazards& state) {
    if (state.begin_cluster()) place(b, OpCode::cluster_wait);
  }

  /// From everything that some iteration may start from.
  void walk_loop(BlockId region, SharedHazards& state) {
    const bool places = std::exchange(places_, false);
    for (SharedHazards start = state;; start = state) {
      SharedHazards end = start;
      walk(region, end);
      state.join(end);
      if (state == start) break;
    }
    places_ = places;
    SharedHazards iteration = state;
    if (places_) walk(region, iteration);
  }

  void walk_condition(const Op& op, SharedHazards& state) {
    std::vector<SharedHazards> ends;
    for (const BlockId region : Regions(op)) {
      SharedHazards& inside = ends.emplace_back(state);
      walk(region, inside);
      if (!is_role_) continue;
      Builder end(f_, region, f_[region].ops.size() - 1);
      for (std::size_t i = 0; i < f_.buffers.size(); ++i) {
        const BufferHazards &now = inside[BufferId(i)], &then = state[BufferId(i)];
        if ((now.by_all && !then.by_all) || (now.by_warpgroup && !then.by_warpgroup))
          meet_writers(end, BufferId(i), inside);
      }
    }
    meet_where_nothing_multiplies(op, ends);
    if (op.otherwise)  // one of the two has run
      for (std::size_t i = 0; i < f_.buffers.size(); ++i) state[BufferId(i)].awaited = false;
    for (const SharedHazards& inside : ends) state.join(inside);
  }

  /// Where the products of one region bring the warps of a warpgroup together, and the other region has
  /// none, as that of a tile without keys, the warps meet in the latter, and not behind both.
  void meet_where_nothing_multiplies(const Op& op, std::vector<SharedHazards>& ends) {
    for (std::size_t at = 0; const BlockId region : Regions(op)) {
      SharedHazards& inside = ends[at++];
      Builder end(f_, region, f_[region].ops.size() - 1);
      for (std::size_t i = 0; i < f_.buffers.size(); ++i) {
        const BufferId buffer(i);
        if (inside[buffer].awaited && releases_for_warpgroup(buffer) &&
            std::ranges::any_of(ends, [&](const auto& s) { return !s[buffer].awaited; }))
          meet(end, OpCode::meet_warpgroup, inside);
      }
    }
  }

  void multiply(Builder& b, const Op& op, SharedHazards& state) {
    SharedHazards::Reads read;
    for (std::size_t k : {0, 1}) {
      if (f_[op.operands[k]].layout.space != Space::shared) continue;
      const BufferId buffer = buffer_of(f_, op.operands[k]);
      const Op* const waited =
          definition_as(f_, operand_root(f_, op.operands[k]).value, OpCode::wait);
      read[buffer] = waited ? std::max(0, state[buffer].held - 1) : 0;
      meet_writers(b, buffer, state);
    }
    for (const auto& [buffer, ahead] : read)
      if (operands_.count(buffer)) state[buffer].multiplied = true;
    state.multiply(std::move(read), op.issued);
  }

  [[nodiscard]] bool releases_for_warpgroup(BufferId ring) const {
    return (f_[ring].transport == Transport::tma || f_[ring].transport == Transport::warps) &&
           releaser_of(f_, ring) == Releaser::warpgroup;
  }

  /// In front of what changes a buffer: the engine has read all that lies there.
  void before_change(Builder& b, const Op& op, BufferId buffer, SharedHazards& state) {
    // A conversion into the next of several slots leaves the others to the engine.
    const int others = op.code == OpCode::convert ? f_[buffer].stages - 1 : 0;
    if (state.any(buffer, [&](const auto& at) { return at.handed_on > others; }))
      fail(op, fmt::format("changes {}, which the copy engine reads", f_[buffer].name));
    if (operands_.count(buffer)) check_products(op, "changes", state);
    if (state.any(buffer, [](const auto& at) { return at.multiplied || at.read; }))
      meet(b, OpCode::meet_role, state);
    else if (state.any(buffer, [](const auto& at) { return at.drained; }))
      meet(b, OpCode::meet_warpgroup, state);
  }

  /// In front of the release of a ring: the copy engine brings the next tile behind reads that were fenced, and
  /// beside others.
  void fence_reads(Builder& b, BufferId ring, SharedHazards& state) {
    if (f_[ring].transport != Transport::tma || !state.is_unfenced(ring)) return;
    state.fence();
    fence_during_products(b);
  }

  /// Fences in front of what the builder puts, and of a wait for products just before that: a thread that
  /// would wait anyway fences while they run.
  void fence_during_products(Builder& b) {
    const std::vector<OpId>& ops = f_[b.block()].ops;
    const auto is = [&](std::size_t at, OpCode code) { return f_[ops[at - 1]].code == code; };
    std::size_t first = b.position();
    while (first > 0 && (is(first, OpCode::release) || is(first, OpCode::wait_products))) --first;
    if (first == b.position()) return place(b, OpCode::fence_async);
    const OpId last = ops[b.position() - 1];
    Builder early(f_, b.block(), first);
    place(early, OpCode::fence_async);
    b.go_behind(last);
  }

  void meet_writers(Builder& b, BufferId buffer, SharedHazards& state) {
    if (state.any(buffer, [](const auto& at) { return at.by_all; }))
      meet(b, OpCode::meet_role, state);
    else if (state.any(buffer, [](const auto& at) { return at.by_warpgroup; }))
      meet(b, OpCode::meet_warpgroup, state);
  }

  void meet(Builder& b, OpCode meeting, SharedHazards& state) {
    state.meet(meeting);
    place(b, meeting);
  }

  void fence_behind(Builder& b, OpId id, SharedHazards& state) {
    b.go_behind(id);
    state.fence();
    place(b, OpCode::fence_async);
  }

  void place(Builder& b, OpCode code) const {
    if (places_) b.append({.code = code});
  }

  void check_products(const Op& op, const char* does, const SharedHazards& state) const {
    if (state.is_multiplied(op.buffer))
      fail(op, fmt::format("{} a slot of {}, which a product in flight reads", does,
                           f_[op.buffer].name));
  }

  [[noreturn]] static void fail(const Op& op, const std::string& what) {
    throw InternalError(fmt::format("{} {}", name_of(op.code), what));
  }

  Function& f_;
  const std::set<BufferId>& asynchronous_;
  bool is_role_ = false;
  std::set<BufferId> stored_;    ///< that the role hands to the engine
  std::set<BufferId> operands_;  ///< that its warps compute for products of all of them
  bool places_ = true;           ///< false while a loop's iterations are only looked at
};

}  // namespace

void insert_barriers(Function& f, const PassContext&) {
  const std::set<BufferId> asynchronous = read_asynchronously(f);
  BarrierPlacer(f, asynchronous).order_block();
  for (const OpId role : roles_of(f)) BarrierPlacer(f, asynchronous).order_role(role);
}

}  // namespace flashcore
