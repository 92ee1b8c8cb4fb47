// With `rescale_before_wait`, a sum that is scaled in front of the product which adds to it is pinned
// where it is scaled, beside the products in flight:
//
//   %scaled = nest : f32[rows, d] in 3 { ... }          %scaled = nest : f32[rows, d] in 3 pinned { ... }
//   %values = wait in v                            ->   %values = wait in v
//   %next = dot %probs, %values, %scaled issued         %next = dot %probs, %values, %scaled issued
//
// Pinned where the product starts, as other sums are, the compiler moves the scaling there, behind the
// wait for the product's tile, and then it holds the product up.
#include <algorithm>

#include "codegen/analysis/product_stages.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {

using namespace ir;

void pin_sums(Function& f, const PassContext& context) {
  if (!context.schedule.rescale_before_wait) return;
  for_each_op(f, f.body, [&](const Op& op, BlockId block) {
    if (op.code != OpCode::nest) return;
    for (const ValueId sum : op.results) {
      const auto adds = [&](OpId id) {
        const Op& reader = f[id];
        return is_asynchronous_product(reader) && reader.operands.size() == 3 &&
               reader.operands[2] == sum && f[sum].array == f[reader.results[0]].array;
      };
      f[sum].pinned = std::ranges::any_of(readers_of(f, block, sum), adds);
    }
  });
}

}  // namespace flashcore
