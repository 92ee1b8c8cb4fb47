#include "codegen/analysis/loop_order.h"

#include <algorithm>
#include <set>

#include "codegen/analysis/rescaled_sums.h"
#include "codegen/analysis/visit.h"

namespace flashcore {

using namespace ir;

bool order_matters(const Function& f, const Op& loop) {
  if (loop.unordered) return false;
  if (std::ranges::any_of(carried_values(f, loop), [](const auto& value) { return !value; }))
    return true;
  const std::vector<ValueId>& arguments = f[loop.body].arguments;
  std::set<ValueId> depends(arguments.begin() + 1, arguments.end());
  bool matters = false;
  for_each_op(f, loop.body, [&](const Op& op, BlockId) {
    const bool reads = any_use(op, [&](ValueId v) { return depends.contains(v); });
    if (reads) depends.insert(op.results.begin(), op.results.end());
    if (reads && op.body) depends.insert(f[op.body].arguments.begin(), f[op.body].arguments.end());
    // Probes show what an iteration has, in whatever order.
    if (op.code != OpCode::store || f[op.tensor].unwritten) return;
    const bool own = std::ranges::any_of(
        op.coordinates, [&](const Coordinate& at) { return f.origin(at.axis) == loop.axis; });
    if (op.accumulation == Accumulation::any_order) return;
    matters = matters || reads || !own || op.accumulation == Accumulation::in_order;
  });
  return matters;
}

}  // namespace flashcore
