#include "codegen/analysis/mask_ops.h"

#include <algorithm>
#include <set>

#include "codegen/passes/rewrite.h"

namespace flashcore {

using namespace ir;

std::vector<OpId> ops_of_mask(const Function& f, BlockId block, OpId mask) {
  const auto& ops = f[block].ops;
  const ValueId hidden = f[mask].operands[1];
  std::set<OpId> own{mask};
  std::vector<OpId> found;
  for (std::size_t i = position_of(f, block, mask); i-- > 0;) {
    const Op& op = f[ops[i]];
    const bool computes =
        kind_of(op.code) == OpKind::elementwise || kind_of(op.code) == OpKind::reduction;
    if (!computes || f[op.results[0]].layout.space != Space::registers || op.results[0] == hidden)
      continue;
    const std::vector<OpId> readers = readers_of(f, block, op.results[0]);
    if (readers.empty() ||
        !std::ranges::all_of(readers, [&](OpId reader) { return own.count(reader) > 0; }))
      continue;
    own.insert(ops[i]);
    found.insert(found.begin(), ops[i]);
  }
  return found;
}

}  // namespace flashcore
