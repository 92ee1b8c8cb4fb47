// A thread has to pass a barrier before it
//   - reads shared memory that another thread has written (or whose asynchronous copy another
//     thread has waited for), or
//   - writes, or issues a copy into, shared memory that another thread may still read or write.
// The pass walks the program in order and tracks what has happened to each buffer since the last
// barrier; buffers that overlap count as one. It walks the region of a loop once to learn the state
// at the end of an iteration, and then places barriers starting from that state: starting from the
// state in front of the loop would place barriers that the start of the next iteration makes
// needless. A loop may also run no iteration, so its barriers do not count for what follows. Slots
// of a ring need no special treatment: the copies of an iteration go into the slot whose readers
// have passed the barrier at the top of the iteration.
#include <utility>
#include <vector>

#include "codegen/analysis/shared_use.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

class BarrierPlacer {
 public:
  explicit BarrierPlacer(Function& f) : f_(f), state_(f.buffers.size()) {}

  void run() { walk(f_.body); }

 private:
  struct State {
    bool read = false;     ///< some thread has read it since the last barrier
    bool written = false;  ///< some thread has written it, or its copies have completed, since then
    bool in_flight = false;  ///< copies have been issued and not waited for

    bool operator==(const State&) const = default;
  };

  void walk(BlockId block) {
    for (std::size_t i = 0; i < f_[block].ops.size(); ++i) {
      const OpId id = f_[block].ops[i];
      const Op op = f_[id];
      if (op.code == OpCode::barrier) {
        meet();
        continue;
      }
      if (op.code == OpCode::wait_copies) {
        for (State& s : state_) {
          s.written = s.written || s.in_flight;
          if (op.pending == 0) s.in_flight = false;
        }
        continue;
      }
      const SharedUse use = shared_use(f_, op);
      if (needs_barrier(use)) {
        meet();
        if (places_)
          i += insert_before(f_, block, i, op.where,
                             [&](Builder& b) { b.append({.code = OpCode::barrier}, {}); });
      }
      note(use);
      if (op.code != OpCode::loop) continue;
      walk_loop(op.body);
      note(use);  // every iteration asks for the next tile
    }
  }

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
    const Buffer& b = f_[buffer];
    for (std::size_t i = 0; i < state_.size(); ++i) {
      const Buffer& other = f_.buffers[i];
      if (b.offset < other.offset + other.bytes() && other.offset < b.offset + b.bytes() &&
          test(state_[i]))
        return true;
    }
    return false;
  }

  void meet() {
    for (State& s : state_) s.read = s.written = false;
  }

  Function& f_;
  std::vector<State> state_;
  bool places_ = true;  ///< false while a loop's first iteration is only looked at
};

}  // namespace

void insert_barriers(Function& f, const PassContext&) { BarrierPlacer(f).run(); }

}  // namespace flashcore
