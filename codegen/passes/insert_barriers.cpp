// A thread must meet the others before it
//   - reads shared memory that another thread wrote (or whose asynchronous copy another waited for), or
//   - writes, or starts a copy into, shared memory that another thread may still be reading or writing.
// The pass walks the program in order, keeping what has happened to each buffer since the last barrier;
// buffers that share space count as one. A loop's region is walked twice, so that the end of one round
// is seen by the beginning of the next; it may also run no round, so that its barriers do not count for
// what follows. Slots of a ring need no further thought: a round's copies go into the slot whose readers
// the barrier at its top has just met.
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
    bool read = false;       ///< some thread has read it since the last barrier
    bool written = false;    ///< some thread has written it, or its copies have landed, since then
    bool in_flight = false;  ///< copies have been issued and not waited for

    void join(const State& other) {
      read = read || other.read;
      written = written || other.written;
      in_flight = in_flight || other.in_flight;
    }
  };

  void walk(BlockId block) {
    for (std::size_t i = 0; i < f_[block].ops.size(); ++i) {
      const OpId id = f_[block].ops[i];
      const Op op = f_[id];
      if (op.body) {
        const std::vector<State> before = state_;
        walk(op.body);
        // The second round finds what the first left behind and settles the barrier at the top.
        walk(op.body);
        for (std::size_t k = 0; k < state_.size(); ++k) state_[k].join(before[k]);
        continue;
      }
      if (op.code == OpCode::barrier) {
        meet();
        continue;
      }
      if (op.code == OpCode::wait_copies) {
        for (State& s : state_) {
          s.written = s.written || s.in_flight;
          if (op.count == 0) s.in_flight = false;
        }
        continue;
      }
      const SharedUse use = shared_use(f_, op);
      if (needs_barrier(use)) {
        meet();
        i += insert_before(f_, block, i, op.where,
                           [&](Builder& b) { b.append({.code = OpCode::barrier}, {}); });
      }
      note(use);
    }
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
};

}  // namespace

void insert_barriers(Function& f, const PassContext&) { BarrierPlacer(f).run(); }

}  // namespace flashcore
