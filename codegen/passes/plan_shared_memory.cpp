// Gives every buffer an address: first fit, longest live range first, where no buffer is that is
// live at the same time. A live range runs from the first op that touches a buffer to the last. A
// loop counts as one op, because an iteration may read what the previous one left in a buffer; but
// where an iteration begins with writing the whole buffer, as a conversion does, the buffer is live
// between two ops of the iteration, unless the copy engine adds it to a tensor, or stores it in a
// block that has another tile, which takes it beyond the iteration. The warpgroups of a role write
// their own rows of a tile and do not wait for each other: two such tiles share an address only if
// the rows of a warpgroup lie at the same place in both.
#include <algorithm>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "codegen/analysis/ring_barriers.h"
#include "codegen/analysis/shared_use.h"
#include "codegen/analysis/visit.h"
#include "codegen/passes/passes.h"
#include "dsl/error.h"

namespace flashcore {
namespace {

using namespace ir;

struct Life {
  std::size_t first = SIZE_MAX, last = 0;
  void touch(std::size_t position) {
    first = std::min(first, position);
    last = std::max(last, position);
  }
  [[nodiscard]] bool overlaps(const Life& other) const {
    return first <= other.last && other.first <= last;
  }
};

/// The lives of all buffers, in ops of the body and, for what is made and used up in an iteration
/// of a loop, in ops of the whole program.
class Lives {
 public:
  std::vector<Life> outer, exact;
  std::vector<bool> by_warpgroups;  ///< written in a role

  explicit Lives(const Function& f)
      : outer(f.buffers.size()),
        exact(f.buffers.size()),
        by_warpgroups(f.buffers.size()),
        f_(f),
        touched_(f.buffers.size()) {
    const auto& ops = f[f.body].ops;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const std::size_t first = now_;
      std::set<std::size_t> whole;
      top_ = i;
      walk(f[ops[i]], f.body, whole);
      for (std::size_t buffer : whole) {
        exact[buffer].touch(first);
        exact[buffer].touch(now_ - 1);
      }
    }
  }

 private:
  /// `whole` collects the buffers that a loop's iterations may hand on.
  void walk(const Op& op, BlockId block, std::set<std::size_t>& whole) {
    const SharedUse use = shared_use(f_, op);
    for (const auto* list : {&use.reads, &use.writes, &use.async_writes})
      for (BufferId id : *list) {
        outer[id.index].touch(top_);
        exact[id.index].touch(now_);
        Touched& touched = touched_[id.index];
        if (!touched.block) touched = {block, op.code == OpCode::convert && list == &use.writes};
        if (in_role_ && op.code == OpCode::convert) by_warpgroups[id.index] = true;
        // What the engine stores it may still read when the block has gone on to its next tile.
        const bool stays =
            op.accumulation != Accumulation::none || (in_tiles_ && op.code == OpCode::store);
        const bool in_iteration = touched.written_first && touched.block == block && !stays;
        if (block != f_.body && !in_iteration) whole.insert(id.index);
      }
    ++now_;
    in_role_ = in_role_ || op.code == OpCode::role;
    const bool around = std::exchange(in_tiles_, in_tiles_ || op.code == OpCode::tile_loop);
    for (const BlockId region : Regions(op))
      for (OpId inner : f_[region].ops) walk(f_[inner], region, whole);
    in_role_ = in_role_ && op.code != OpCode::role;
    in_tiles_ = around;
  }

  struct Touched {
    BlockId block;
    bool written_first = false;
  };

  const Function& f_;
  std::vector<Touched> touched_;
  std::size_t now_ = 0, top_ = 0;
  bool in_role_ = false, in_tiles_ = false;
};

/// Whether each row of one tile has the address of the same row of another, if both begin at one.
bool rows_coincide(const Buffer& a, const Buffer& b) {
  return a.dtype == b.dtype && a.rows == b.rows && same_panels(a, b);
}

}  // namespace

void plan_shared_memory(Function& f, const PassContext& context) {
  const Lives lives(f);

  std::vector<std::size_t> order(f.buffers.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const Life &one = lives.outer[a], &other = lives.outer[b];
    return one.last - one.first > other.last - other.first;
  });
  int total = 0;
  std::vector<std::size_t> placed;
  for (std::size_t i : order) {
    Buffer& buffer = f.buffers[i];
    if (buffer.over || buffer.holds_scalars()) continue;
    buffer.offset = 0;
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t other : placed) {
        const Buffer& taken = f.buffers[other];
        const bool shared_out =
            lives.by_warpgroups[i] && lives.by_warpgroups[other] && !rows_coincide(buffer, taken);
        if (!lives.exact[i].overlaps(lives.exact[other]) && !shared_out) continue;
        if (overlap(buffer, taken)) {
          buffer.offset = whole_periods(taken.offset + taken.bytes());
          moved = true;
        }
      }
    }
    placed.push_back(i);
    total = std::max(total, buffer.offset + buffer.bytes());
  }

  for (Buffer& buffer : f.buffers)
    if (buffer.over) buffer.offset = f[buffer.over].offset;
  const RingBarriers barriers = ring_barriers(f, total);
  for (const auto& [ring, place] : barriers.of) {
    f[ring].full = place.full;
    f[ring].empty = place.empty;
    f[ring].releases = place.releases;
    if (f[ring].holds_scalars()) f[ring].offset = place.behind;
  }
  total = barriers.end;

  const int limit = context.shared_limit();
  if (total > limit)
    throw ScheduleError({fmt::format("{} needs {} bytes of shared memory a block", f.name, total),
                         context.schedule.shared_limit
                             ? fmt::format("the schedule's shared_limit is {}", limit)
                             : fmt::format("{} allows {}", context.target.name, limit),
                         ""});
}

}  // namespace flashcore
