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

/// From the first op that touches a buffer to the last.
struct Span {
  std::size_t first = SIZE_MAX, last = 0;
  void touch(std::size_t position) {
    first = std::min(first, position);
    last = std::max(last, position);
  }
  [[nodiscard]] bool overlaps(const Span& other) const {
    return first <= other.last && other.first <= last;
  }
};

struct Life {
  Span outer;  ///< in ops of the body
  Span
      exact;  ///< in ops of the whole program, of what is made and used up in an iteration of a loop
  bool by_warpgroups = false;  ///< written in a role
  BlockId begins_in;           ///< where the first op is that touches it,
  bool written_first = false;  ///< and whether that writes all of it
};

/// Finds the lives of all buffers.
class LifeFinder {
 public:
  explicit LifeFinder(const Function& f) : f_(f), lives_(f.buffers.size()) {}

  std::vector<Life> run() {
    for (OpId id : f_[f_.body].ops) {
      const std::size_t first = now_;
      std::set<std::size_t> whole;
      walk(f_[id], f_.body, whole);
      for (std::size_t buffer : whole)
        for (std::size_t end : {first, now_ - 1}) lives_[buffer].exact.touch(end);
      ++top_;
    }
    return std::move(lives_);
  }

 private:
  /// `whole` collects the buffers that a loop's iterations may hand on.
  void walk(const Op& op, BlockId block, std::set<std::size_t>& whole) {
    const SharedUse use = shared_use(f_, op);
    const bool converts = op.code == OpCode::convert;
    // What the engine stores it may still read when the block has gone on to its next tile.
    const bool stays =
        op.accumulation != Accumulation::none || (in_tiles_ && op.code == OpCode::store);
    for (const auto* list : {&use.reads, &use.writes, &use.async_writes})
      for (BufferId id : *list) {
        Life& life = lives_[id.index];
        life.outer.touch(top_);
        life.exact.touch(now_);
        if (!life.begins_in) life.written_first = converts && list == &use.writes;
        if (!life.begins_in) life.begins_in = block;
        life.by_warpgroups = life.by_warpgroups || (in_role_ && converts);
        const bool in_iteration = life.written_first && life.begins_in == block && !stays;
        if (block != f_.body && !in_iteration) whole.insert(id.index);
      }
    ++now_;
    const bool role = std::exchange(in_role_, in_role_ || op.code == OpCode::role);
    const bool tiles = std::exchange(in_tiles_, in_tiles_ || op.code == OpCode::tile_loop);
    for (const BlockId region : Regions(op))
      for (OpId inner : f_[region].ops) walk(f_[inner], region, whole);
    in_role_ = role;
    in_tiles_ = tiles;
  }

  const Function& f_;
  std::vector<Life> lives_;
  std::size_t now_ = 0, top_ = 0;
  bool in_role_ = false, in_tiles_ = false;
};

}  // namespace

void plan_shared_memory(Function& f, const PassContext& context) {
  const std::vector<Life> lives = LifeFinder(f).run();

  std::vector<std::size_t> order(f.buffers.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const Span &one = lives[a].outer, &other = lives[b].outer;
    return one.last - one.first > other.last - other.first;
  });
  int total = 0;
  std::vector<std::size_t> placed;
  for (std::size_t i : order) {
    Buffer& buffer = f.buffers[i];
    if (buffer.over || buffer.beside || buffer.holds_scalars()) continue;
    buffer.offset = 0;
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t other : placed) {
        const Buffer& taken = f.buffers[other];
        // Each row of one tile has the address of the same row of the other, if both begin at one.
        const bool rows_coincide =
            buffer.dtype == taken.dtype && buffer.rows == taken.rows && same_panels(buffer, taken);
        const bool shared_out =
            lives[i].by_warpgroups && lives[other].by_warpgroups && !rows_coincide;
        if (!lives[i].exact.overlaps(lives[other].exact) && !shared_out) continue;
        if (overlap(buffer, taken)) {
          buffer.offset = whole_periods(taken.offset + taken.bytes());
          moved = true;
        }
      }
    }
    placed.push_back(i);
    total = std::max(total, buffer.offset + buffer.bytes());
  }

  for (Buffer& buffer : f.buffers) {
    if (buffer.over) buffer.offset = f[buffer.over].offset;
    if (buffer.beside) buffer.offset += f[buffer.beside].offset;
  }
  const RingBarriers barriers = ring_barriers(f, total);
  for (const auto& [id, ring] : barriers.rings) f[id] = ring;
  total = barriers.end;

  const Target& target = context.target;
  if (total > target.shared_per_block)
    throw ScheduleError({fmt::format("{} needs {} bytes of shared memory a block", f.name, total),
                         fmt::format("{} allows {}", target.name, target.shared_per_block), ""});
}

}  // namespace flashcore
