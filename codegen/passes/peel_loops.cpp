// A loop with bounds [begin, full_begin, full_end, end) becomes up to three: between full_begin and
// full_end every masking `where` holds, so that part is copied without them. A part whose two bounds are
// the same value is left out. A schedule that does not peel leaves such a loop whole, and the printer
// puts the masks behind a test of the tile's number.
#include <algorithm>
#include <vector>

#include "codegen/passes/copy_ops.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

/// Drops every `where` of the region whose condition is known to hold.
void drop_masks(Function& f, BlockId region) {
  for (OpId id : f[region].ops)
    if (f[id].code == OpCode::where && f[id].masking) replace_uses(f, f[id].results[0], f[id].operands[1]);
}

void peel(Function& f, BlockId block, std::size_t position) {
  const OpId id = f[block].ops[position];
  const Op loop = f[id];
  const std::vector<ValueId> bounds(loop.operands.begin(), loop.operands.begin() + loop.bounds);
  std::vector<ValueId> carried(loop.operands.begin() + loop.bounds, loop.operands.end());

  struct Part {
    ValueId begin, end;
    bool full;
  };
  std::vector<Part> parts;
  for (int k = 0; k < 3; ++k)
    if (bounds[k] != bounds[k + 1]) parts.push_back({bounds[k], bounds[k + 1], k == 1});
  if (loop.descending) std::reverse(parts.begin(), parts.end());
  if (parts.empty()) parts.push_back({bounds[0], bounds[3], true});

  std::vector<OpId> copies;
  for (const Part& part : parts) {
    Op copy = loop;
    copy.bounds = 2;
    copy.operands = {part.begin, part.end};
    copy.operands.insert(copy.operands.end(), carried.begin(), carried.end());
    copy.body = OpCopier(f).copy_region(loop.body);
    copy.results.clear();
    const OpId copied(f.ops.size());
    for (std::size_t i = 0; i < loop.results.size(); ++i) {
      const ValueId result(f.values.size());
      f.values.push_back(Value(f[loop.results[i]]));
      f[result].definition = copied;
      copy.results.push_back(result);
      carried[i] = result;
    }
    f.ops.push_back(std::move(copy));
    copies.push_back(copied);
  }
  auto& ops = f[block].ops;
  ops.erase(ops.begin() + static_cast<std::ptrdiff_t>(position));
  ops.insert(ops.begin() + static_cast<std::ptrdiff_t>(position), copies.begin(), copies.end());
  for (std::size_t i = 0; i < loop.results.size(); ++i) replace_uses(f, loop.results[i], carried[i]);
  for (std::size_t k = 0; k < parts.size(); ++k)
    if (parts[k].full) drop_masks(f, f[copies[k]].body);
}

/// Whether some tiles of the loop are masked and others are known to be full.
bool is_mixed(const Op& loop) {
  return loop.operands[0] != loop.operands[1] || loop.operands[2] != loop.operands[3];
}

/// From the inside out: the parts of a loop are copies of its finished body.
void peel_block(Function& f, BlockId block, const Schedule& schedule) {
  for (std::size_t i = 0; i < f[block].ops.size(); ++i) {
    const OpId id = f[block].ops[i];
    if (f[id].body && f[id].code != OpCode::survey) peel_block(f, f[id].body, schedule);
    const Op& op = f[id];
    if (op.bounds != 4) continue;
    if (!is_mixed(op) || (schedule.peel_masks && !op.once)) peel(f, block, i);
  }
}

}  // namespace

void peel_loops(Function& f, const PassContext& context) {
  peel_block(f, f.body, context.schedule);
  remove_dead_ops(f);
}

}  // namespace flashcore
