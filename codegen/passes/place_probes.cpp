// The stores of probes start at the end of their block (dsl/probes.h), so that they show what
// earlier passes do to a value. A tile that were live until then would take registers that the
// kernel needs; so this pass moves each store right behind the op that makes its tile. The masks
// are known here, so the pass also derives what a probe shows of the tiles that the loop does not
// visit.
#include <vector>

#include "codegen/analysis/neutral.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

void place_in_block(Function& f, BlockId block, const ProbeOps& probes) {
  std::vector<OpId> kept, moved;
  for (OpId id : f[block].ops) (probes.has(id) ? moved : kept).push_back(id);
  for (OpId id : moved) {
    // Behind the last op of this block that it reads.
    std::size_t position = 0;
    for_each_use(f[id], [&](const ValueId& v) {
      for (std::size_t i = position; i < kept.size(); ++i)
        if (f[v].definition == kept[i]) position = i + 1;
    });
    kept.insert(kept.begin() + static_cast<std::ptrdiff_t>(position), id);
  }
  f[block].ops = std::move(kept);
}

}  // namespace

void place_probes(Function& f, const PassContext&) {
  const ProbeOps probes(f);
  if (!probes.any()) return;
  for_each_op(f, f.body, [&](const Op& loop, BlockId) {
    if (!loop.body) return;
    for_each_op(f, loop.body, [&](const Op& op, BlockId) {
      if (op.code != OpCode::store || !f[op.tensor].unwritten) return;
      if (const auto number = value_if_skipped(f, loop, op.operands[0]))
        f[op.tensor].unwritten = number;
    });
  });
  for (std::size_t i = 0; i < f.blocks.size(); ++i) place_in_block(f, BlockId(i), probes);
}

}  // namespace flashcore
