// Inside a role threads share slots of channels and tiles that they write for the copy engine.
//
//   A thread writes what the engine or products read     fence_async right behind
//   The engine or products read what threads wrote       the threads have met: those of a warpgroup,
//                                                        whose rows its own thread hands on, or all
//                                                        of the role, where the tile is for all
//   Threads write, or release, what the engine has read  the thread that handed it on has waited
//                                                        (drain_stores), and has met the others; a
//                                                        tile with several slots may be handed on
//                                                        once less often
//   The block's turn to add is passed on                 what the engine adds at it has been added
//                                                        (complete_stores)
//   A slot is released, or filled by who reads it        no product in flight reads it
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
#include "codegen/passes/role_hazards.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "codegen/analysis/ring_barriers.h"
#include "codegen/analysis/shared_use.h"
#include "codegen/passes/rewrite.h"
#include "dsl/error.h"

namespace flashcore {
namespace {

using namespace ir;

/// What has happened to a buffer.
struct Use {
  bool by_warpgroup = false, by_role = false;  ///< written, and the writers have not met since
  int handed_on = 0;        ///< how often it has been: the engine may be reading as many slots
  bool adding = false;      ///< the engine may be adding it at the block's turn
  bool drained = false;     ///< it is done, as the thread that asked it knows, and no other
  bool multiplied = false;  ///< products of the role have read it, and the warps have not met since
  bool read = false;        ///< threads of the role have read it, and have not met since
  bool given = false;    ///< other blocks of the cluster write it, and have not met this one since
  bool awaited = false;  ///< threads have waited for a slot of it, each for itself

  bool operator==(const Use&) const = default;
  void join(const Use& other) {
    by_warpgroup = by_warpgroup || other.by_warpgroup;
    by_role = by_role || other.by_role;
    handed_on = std::max(handed_on, other.handed_on);
    adding = adding || other.adding;
    drained = drained || other.drained;
    multiplied = multiplied || other.multiplied;
    read = read || other.read;
    given = given || other.given;
    awaited = awaited || other.awaited;
  }
};

struct State {
  std::vector<Use> uses;                      ///< by buffer
  std::vector<std::set<BufferId>> in_flight;  ///< what products read, the oldest first
  bool cluster_has_begun = false;             ///< all its blocks

  bool operator==(const State&) const = default;
  void join(const State& other) {
    cluster_has_begun = cluster_has_begun && other.cluster_has_begun;
    for (std::size_t i = 0; i < uses.size(); ++i) uses[i].join(other.uses[i]);
    if (other.in_flight.size() > in_flight.size()) in_flight = other.in_flight;
  }
};

class RoleHazards {
 public:
  RoleHazards(Function& f, const std::set<BufferId>& asynchronous)
      : f_(f), asynchronous_(asynchronous) {}

  void run(OpId role) {
    for_each_op(f_, f_[role].body, [&](const Op& op, BlockId) {
      if (stores_tile(op)) stored_.insert(buffer_of(f_, op.operands[0]));
      if (op.code != OpCode::dot) return;
      for (std::size_t k : {0, 1})
        if (const Op* made_by =
                definition_as(f_, tile_in_shared(f_, op.operands[k]), OpCode::convert);
            made_by && made_by->buffer)
          operands_.insert(made_by->buffer);
    });
    State state;
    state.uses.resize(f_.buffers.size());
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
      if (state.uses[buffer.index].handed_on > 0)
        fail(f_[role], fmt::format("ends while the copy engine reads {}", f_[buffer].name));
  }

 private:
  [[nodiscard]] bool stores_tile(const Op& op) const {
    return op.code == OpCode::store && f_[op.operands[0]].layout.space == Space::shared;
  }

  void walk(BlockId block, State& state) {
    rewrite_ops(f_, block, [&](Builder& b, OpId id) {
      const Op op = f_[id];
      if (reads_given(op, state)) meet(b, OpCode::cluster_sync, state);
      switch (op.code) {
        case OpCode::convert:
          if (op.blocks > 1) {
            wait_for_cluster(b, state);
            state.uses[op.buffer.index].given = true;
          }
          if (!op.buffer || op.blocks > 0) break;
          before_change(b, op, op.buffer, state);
          if (!asynchronous_.count(op.buffer)) {
            state.uses[op.buffer.index].by_role = true;
            break;
          }
          fence_behind(b, id);
          (operands_.count(op.buffer) ? state.uses[op.buffer.index].by_role
                                      : state.uses[op.buffer.index].by_warpgroup) = true;
          break;
        case OpCode::combine_partials:
          if (f_[op.operands[0]].layout.space != Space::shared) break;
          meet_writers(b, buffer_of(f_, op.operands[0]), state);
          state.uses[buffer_of(f_, op.operands[0]).index].read = true;
          break;
        case OpCode::clear_rows:
          fence_behind(b, id);
          state.uses[buffer_of(f_, op.operands[0]).index].by_role = true;
          break;
        case OpCode::store:
          if (!stores_tile(op)) break;
          meet_writers(b, buffer_of(f_, op.operands[0]), state);
          hand_on(op, state);
          break;
        case OpCode::dot:
          multiply(b, op, state);
          break;
        case OpCode::wait:
          if (op.buffer) state.uses[op.buffer.index].awaited = true;
          break;
        case OpCode::wait_products:
          while (state.in_flight.size() > static_cast<std::size_t>(op.pending)) {
            has_multiplied(state.in_flight.front(), state);
            state.in_flight.erase(state.in_flight.begin());
          }
          break;
        case OpCode::drain_stores:
        case OpCode::complete_stores:
          drain(op, state);
          break;
        case OpCode::release_turn:
          for (const BufferId buffer : stored_)
            if (state.uses[buffer.index].adding)
              fail(op, fmt::format("passes the turn on while the copy engine adds {}",
                                   f_[buffer].name));
          break;
        case OpCode::issue:
          if (f_[op.buffer].transport == Transport::tma) check_products(op, "fills", state);
          break;
        case OpCode::release:
          check_products(op, "releases", state);
          before_change(b, op, op.buffer, state);
          if (state.uses[op.buffer.index].awaited && releases_for_warpgroup(op.buffer))
            meet(b, OpCode::meet_warpgroup, state);
          break;
        case OpCode::meet_warpgroup:
        case OpCode::meet_role:
          met(op.code, state);
          break;
        case OpCode::loop:
        case OpCode::tile_loop:
          walk_loop(op.body, state);
          break;
        case OpCode::if_:
          walk_condition(op, state);
          break;
        default:
          break;
      }
    });
  }

  void hand_on(const Op& store, State& state) const {
    const BufferId buffer = buffer_of(f_, store.operands[0]);
    Use& use = state.uses[buffer.index];
    use.handed_on = std::min(use.handed_on + 1, f_[buffer].stages);
    use.adding = use.adding || store.accumulation == Accumulation::in_order;
  }

  void drain(const Op& op, State& state) const {
    for (const BufferId buffer : stored_) {
      Use& use = state.uses[buffer.index];
      use.handed_on = std::min(use.handed_on, op.pending);
      use.drained = true;
      if (op.code == OpCode::complete_stores) use.adding = false;
    }
  }

  /// Itself, or in a region.
  [[nodiscard]] bool reads_given(const Op& op, const State& state) const {
    if (op.code == OpCode::cluster_read)
      return state.uses[buffer_of(f_, op.operands[0]).index].given;
    return std::ranges::any_of(Regions(op), [&](BlockId region) {
      return std::ranges::any_of(f_[region].ops,
                                 [&](OpId inner) { return reads_given(f_[inner], state); });
    });
  }

  void wait_for_cluster(Builder& b, State& state) {
    if (!std::exchange(state.cluster_has_begun, true)) place(b, OpCode::cluster_wait);
  }

  /// From everything that some iteration may start from.
  void walk_loop(BlockId region, State& state) {
    const bool places = std::exchange(places_, false);
    for (State start = state;; start = state) {
      State end = start;
      walk(region, end);
      state.join(end);
      if (state == start) break;
    }
    places_ = places;
    State round = state;
    if (places_) walk(region, round);
  }

  void walk_condition(const Op& op, State& state) {
    std::vector<State> ends;
    for (const BlockId region : Regions(op)) {
      State& inside = ends.emplace_back(state);
      walk(region, inside);
      Builder end(f_, region, f_[region].ops.size() - 1);
      for (std::size_t b = 0; b < inside.uses.size(); ++b) {
        const Use &now = inside.uses[b], &then = state.uses[b];
        if ((now.by_role && !then.by_role) || (now.by_warpgroup && !then.by_warpgroup))
          meet_writers(end, BufferId(b), inside);
      }
    }
    meet_where_nothing_multiplies(op, ends);
    if (op.otherwise)  // one of the two has run
      for (Use& use : state.uses) use.awaited = false;
    for (const State& inside : ends) state.join(inside);
  }

  /// Where the products of one region bring the warps of a warpgroup together, and the other region has
  /// none, as that of a tile without keys, the warps meet in the latter, and not behind both.
  void meet_where_nothing_multiplies(const Op& op, std::vector<State>& ends) {
    for (std::size_t at = 0; const BlockId region : Regions(op)) {
      State& inside = ends[at++];
      Builder end(f_, region, f_[region].ops.size() - 1);
      for (std::size_t b = 0; b < inside.uses.size(); ++b)
        if (inside.uses[b].awaited && releases_for_warpgroup(BufferId(b)) &&
            std::ranges::any_of(ends, [&](const State& s) { return !s.uses[b].awaited; }))
          meet(end, OpCode::meet_warpgroup, inside);
    }
  }

  void multiply(Builder& b, const Op& op, State& state) {
    std::set<BufferId> read;
    for (std::size_t k : {0, 1}) {
      if (f_[op.operands[k]].layout.space != Space::shared) continue;
      read.insert(buffer_of(f_, op.operands[k]));
      meet_writers(b, buffer_of(f_, op.operands[k]), state);
    }
    for (const BufferId buffer : read)
      if (operands_.count(buffer)) state.uses[buffer.index].multiplied = true;
    if (!op.issued) return has_multiplied(read, state);
    state.in_flight.push_back(std::move(read));
  }

  /// A product is over when all warps of its warpgroup have come to it.
  static void has_multiplied(const std::set<BufferId>& read, State& state) {
    for (const BufferId buffer : read) state.uses[buffer.index].awaited = false;
  }

  [[nodiscard]] bool releases_for_warpgroup(BufferId ring) const {
    return f_[ring].transport == Transport::tma && releaser_of(f_, ring) == Releaser::warpgroup;
  }

  /// In front of what changes a buffer: the engine has read all that lies there.
  void before_change(Builder& b, const Op& op, BufferId buffer, State& state) {
    // A conversion into the next of several slots leaves the others to the engine.
    const int others = op.code == OpCode::convert ? f_[buffer].stages - 1 : 0;
    if (any(buffer, state, [&](const Use& use) { return use.handed_on > others; }))
      fail(op, fmt::format("changes {}, which the copy engine reads", f_[buffer].name));
    if (operands_.count(buffer)) check_products(op, "changes", state);
    if (any(buffer, state, [](const Use& use) { return use.multiplied || use.read; }))
      meet(b, OpCode::meet_role, state);
    else if (any(buffer, state, [](const Use& use) { return use.drained; }))
      meet(b, OpCode::meet_warpgroup, state);
  }

  void meet_writers(Builder& b, BufferId buffer, State& state) {
    if (any(buffer, state, [](const Use& use) { return use.by_role; }))
      meet(b, OpCode::meet_role, state);
    else if (any(buffer, state, [](const Use& use) { return use.by_warpgroup; }))
      meet(b, OpCode::meet_warpgroup, state);
  }

  void meet(Builder& b, OpCode code, State& state) {
    met(code, state);
    place(b, code);
  }

  void met(OpCode code, State& state) const {
    for (std::size_t i = 0; i < state.uses.size(); ++i) {
      Use& use = state.uses[i];
      if (code == OpCode::cluster_sync) {
        use.given = false;
        continue;
      }
      use.by_warpgroup = use.drained = use.awaited = false;
      if (code != OpCode::meet_role) continue;
      use.by_role = use.read = false;
      const bool in_flight = std::ranges::any_of(
          state.in_flight, [&](const auto& read) { return read.count(BufferId(i)) > 0; });
      use.multiplied = use.multiplied && in_flight;
    }
  }

  void fence_behind(Builder& b, OpId id) {
    b.go_behind(id);
    place(b, OpCode::fence_async);
  }

  void place(Builder& b, OpCode code) const {
    if (places_) b.append({.code = code});
  }

  void check_products(const Op& op, const char* does, const State& state) const {
    for (const std::set<BufferId>& read : state.in_flight)
      if (read.count(op.buffer))
        fail(op, fmt::format("{} a slot of {}, which a product in flight reads", does,
                             f_[op.buffer].name));
  }

  template <class Test>
  [[nodiscard]] bool any(BufferId buffer, const State& state, Test test) const {
    for (std::size_t i = 0; i < state.uses.size(); ++i)
      if (overlap(f_[buffer], f_.buffers[i]) && test(state.uses[i])) return true;
    return false;
  }

  [[noreturn]] static void fail(const Op& op, const std::string& what) {
    throw InternalError(fmt::format("{} {}", name_of(op.code), what));
  }

  Function& f_;
  const std::set<BufferId>& asynchronous_;
  std::set<BufferId> stored_;    ///< that the role hands to the engine
  std::set<BufferId> operands_;  ///< that its warps compute for products of all of them
  bool places_ = true;           ///< false while a loop's iterations are only looked at
};

}  // namespace

std::set<BufferId> read_asynchronously(const Function& f) {
  std::set<BufferId> buffers;
  for (OpId role : roles_of(f))
    for_each_op(f, f[role].body, [&](const Op& op, BlockId) {
      const std::size_t operands = op.code == OpCode::store              ? 1
                                   : op.code == OpCode::dot && op.issued ? 2
                                                                         : 0;
      for (std::size_t i = 0; i < operands; ++i)
        if (f[op.operands[i]].layout.space == Space::shared)
          buffers.insert(buffer_of(f, op.operands[i]));
    });
  return buffers;
}

void order_role(Function& f, OpId role, const std::set<BufferId>& asynchronous) {
  RoleHazards(f, asynchronous).run(role);
}

}  // namespace flashcore
