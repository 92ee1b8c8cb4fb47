#include "codegen/passes/first_round.h"

#include "codegen/passes/rewrite.h"

namespace flashcore {

using namespace ir;

std::vector<ValueId> bounds_behind_first(Function& f, BlockId block, const Op& loop, ValueId tile) {
  std::vector<ValueId> bounds(loop.operands.begin(), loop.operands.begin() + loop.bounds);
  insert_before(f, block, f[block].ops.size(), loop.where, [&](Builder& b) {
    const auto in_all_lanes = [&](ValueId value) {
      const Op* op = f.definition(value);
      if (op && kind_of(op->code) != OpKind::source) f[value].home.space = Space::uniform;
      return value;
    };
    if (bounds.empty())
      bounds = {in_all_lanes(b.constant(0, DType::i32)), in_all_lanes(b.tile_count(loop.axis))};
    const ValueId from =
        loop.descending ? tile : in_all_lanes(b.add(tile, b.constant(1, DType::i32)));
    const std::vector<ValueId> old = bounds;
    const std::size_t fixed = loop.descending ? bounds.size() - 1 : 0,
                      other = bounds.size() - 1 - fixed;
    bounds[fixed] = from;
    for (std::size_t i = 1; i + 1 < bounds.size(); ++i) {
      if (old[i] == old[fixed])
        bounds[i] = from;
      else if (old[i] != old[other])
        bounds[i] = in_all_lanes(
            b.elementwise(loop.descending ? OpCode::min : OpCode::max, {old[i], from}));
    }
  });
  return bounds;
}

}  // namespace flashcore
