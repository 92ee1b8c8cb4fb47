// A thread must meet the others before it
//   - reads shared memory that another thread wrote (or whose asynchronous copy another waited
//   for), or
//   - writes, or starts a copy into, shared memory that another thread may still be reading or
//   writing.
// The pass walks the program in order, keeping what has happened to each buffer since the last
// barrier; buffers that share space count as one. A loop's region is walked once to see how an
// iteration ends, then from there to place its barriers: an iteration placed from the start of the
// first one would get barriers that the start of the next makes needless. It may also run no
// iteration, so that its barriers do not count for what follows. Slots of a ring need no further
// thought: an iteration's copies go into the slot whose readers the barrier at its top has just
// met.
//
// Roles have their own pace, and meet in parts: role_hazards.cpp. What all threads write in front
// of the roles for the copy engine and products in flight they fence, too.
#include <set>
#include <utility>
#include <vector>

#include "codegen/analysis/shared_use.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"
#include "codegen/passes/role_hazards.h"

namespace flashcore {
namespace {

using namespace ir;

class BarrierPlacer {
 public:
  BarrierPlacer(Function& f, const std::set<BufferId>& asynchronous)
      : f_(f), asynchronous_(asynchronous), state_(f.buffers.size()) {}

  void walk(BlockId block) {
    rewrite_ops(f_, block, [&](Builder& b, OpId id) {
      const Op op = f_[id];
      if (op.code == OpCode::barrier) return meet();
      if (op.code == OpCode::wait && !op.buffer) {
        for (State& s : state_) {
          s.written = s.written || s.in_flight;
          if (op.pending == 0) s.in_flight = false;
        }
        return;
      }
      const SharedUse use = shared_use(f_, op);
      if (needs_barrier(use)) {
        meet();
        if (places_) b.append({.code = OpCode::barrier});
      }
      note(use);
      if (places_ && op.code == OpCode::convert && asynchronous_.count(op.buffer)) {
        b.go_behind(id);
        b.append({.code = OpCode::fence_async});
      }
      if (op.code != OpCode::loop) return;
      walk_loop(op.body);
      note(use);  // every iteration asks for the next tile
    });
  }

 private:
  struct State {
    bool read = false;     ///< some thread has read it since the last barrier
    bool written = false;  ///< some thread has written it, or its copies have completed, since then
    bool in_flight = false;  ///< copies have been issued and not waited for

    bool operator==(const State&) const = default;
  };

  void walk_loop(BlockId region) {
    const std::vector<State> before = state_;
    const bool places = std::exchange(places_, false);
    walk(region);
    places_ = places;
    // From everything that some iteration may start from, until no iteration ends with more.
    std::vector<State> start = before;
    join(start, state_);
    do {
      state_ = start;
      walk(region);
    } while (join(start, state_));
    join(state_, before);
  }

  /// Adds what may have happened instead; says whether that is more.
  static bool join(std::vector<State>& states, const std::vector<State>& others) {
    const std::vector<State> old = states;
    for (std::size_t k = 0; k < states.size(); ++k) {
      states[k].read = states[k].read || others[k].read;
      states[k].written = states[k].written || others[k].written;
      states[k].in_flight = states[k].in_flight || others[k].in_flight;
    }
    return states != old;
  }

  [[nodiscard]] bool needs_barrier(const SharedUse& use) const {
    for (BufferId buffer : use.reads)
      if (any(buffer, [](const State& s) { return s.written; })) return true;
    for (const auto* writes : {&use.writes, &use.async_writes})
      for (BufferId buffer : *writes)
        if (any(buffer, [](const State& s) { return s.read || s.written; })) return true;
    return false;
  }

  void note(const SharedUse& use) {
    for (BufferId buffer : use.reads) state_[buffer.index].read = true;
    for (BufferId buffer : use.writes) state_[buffer.index].written = true;
    for (BufferId buffer : use.async_writes) state_[buffer.index].in_flight = true;
  }

  template <class Test>
  [[nodiscard]] bool any(BufferId buffer, Test test) const {
    for (std::size_t i = 0; i < state_.size(); ++i)
      if (overlap(f_[buffer], f_.buffers[i]) && test(state_[i])) return true;
    return false;
  }

  void meet() {
    for (State& s : state_) s.read = s.written = false;
  }

  Function& f_;
  const std::set<BufferId>& asynchronous_;
  std::vector<State> state_;
  bool places_ = true;  ///< false while a loop's first iteration is only looked at
};

}  // namespace

void insert_barriers(Function& f, const PassContext&) {
  const std::set<BufferId> asynchronous = read_asynchronously(f);
  BarrierPlacer(f, asynchronous).walk(f.body);
  for (OpId role : roles_of(f)) order_role(f, role, asynchronous);
}

}  // namespace flashcore
