#include "codegen/analysis/rounds_later.h"

#include <algorithm>

#include "codegen/analysis/visit.h"

namespace flashcore {

using namespace ir;

bool rounds_later(const Function& f, const Op& nest, ValueId value) {
  if (!is_half(f[value].type.dtype)) return false;
  const Op& yield = last_of(f, nest.body);
  ValueId result;
  for (std::size_t i = 0; i < yield.operands.size(); ++i)
    if (yield.operands[i] == value) result = nest.results[i];
  bool all = true;
  for_each_op(f, f.body, [&](const Op& op, BlockId) {
    if (op.code == OpCode::store || op.code == OpCode::convert || &op == &yield) return;
    const auto reads = [&](ValueId v) { return v && std::ranges::count(op.operands, v) > 0; };
    all = all && !reads(value) && !reads(result);
  });
  return all;
}

}  // namespace flashcore
