// Places every buffer: first fit, longest first, where no buffer that lives at the same time lies. A
// life runs from the first op that touches a buffer to the last, a loop counting as one op.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "codegen/analysis/shared_use.h"
#include "codegen/passes/passes.h"
#include "dsl/error.h"

namespace flashcore {
namespace {

using namespace ir;

constexpr int alignment = 1024;  // a whole period of the 128-byte swizzle, as TMA asks for

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

void touch_op(const Function& f, const Op& op, std::size_t position, std::vector<Life>& lives) {
  const SharedUse use = shared_use(f, op);
  for (const auto* list : {&use.reads, &use.writes, &use.async_writes})
    for (BufferId buffer : *list) lives[buffer.index].touch(position);
  if (op.body)
    for_each_op(f, op.body,
                [&](const Op& inner, BlockId) { touch_op(f, inner, position, lives); });
}

int round_up(int value) { return (value + alignment - 1) / alignment * alignment; }

}  // namespace

void plan_shared_memory(Function& f, const PassContext& context) {
  std::vector<Life> lives(f.buffers.size());
  const auto& ops = f[f.body].ops;
  for (std::size_t i = 0; i < ops.size(); ++i) touch_op(f, f[ops[i]], i, lives);

  std::vector<std::size_t> order(f.buffers.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return lives[a].last - lives[a].first > lives[b].last - lives[b].first;
  });
  int total = 0;
  std::vector<std::size_t> placed;
  for (std::size_t i : order) {
    Buffer& buffer = f.buffers[i];
    buffer.offset = 0;
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t other : placed) {
        const Buffer& taken = f.buffers[other];
        if (!lives[i].overlaps(lives[other])) continue;
        if (buffer.offset < taken.offset + taken.bytes() &&
            taken.offset < buffer.offset + buffer.bytes()) {
          buffer.offset = round_up(taken.offset + taken.bytes());
          moved = true;
        }
      }
    }
    placed.push_back(i);
    total = std::max(total, buffer.offset + buffer.bytes());
  }

  const int limit = context.schedule.shared_limit ? context.schedule.shared_limit
                                                  : context.target.shared_per_block;
  if (total > limit)
    throw ScheduleError(
        {fmt::format("{} needs {} bytes of shared memory a block", f.name, total),
         context.schedule.shared_limit
             ? fmt::format("the schedule's shared_limit is {}", limit)
             : fmt::format("{} allows {}", context.target.name, limit),
         "", {}});
}

}  // namespace flashcore
