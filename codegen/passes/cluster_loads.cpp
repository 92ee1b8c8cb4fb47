#include "codegen/passes/cluster_loads.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "codegen/analysis/product_stages.h"
#include "codegen/analysis/visit.h"
#include "codegen/passes/copy_ops.h"
#include "codegen/passes/issued_loads.h"
#include "codegen/passes/rewrite.h"
#include "dsl/error.h"

namespace flashcore {

using namespace ir;

int ClusterLoads::blocks_of(const Op& load) const {
  return has_computed_positions(f_, load) || differs(load) ? 1 : blocks_;
}

/// Whether an op, its regions or the values that these read depend on the block's tile.
bool ClusterLoads::differs(const Op& op) const {
  return any_op_of(f_, op, [&](const Op& inner) {
    return needs_position(f_, inner, first_axis_of(f_, AxisKind::parallel_tiles)) ||
           any_use(inner, [&](ValueId v) { return differs(v); });
  });
}

bool ClusterLoads::differs(ValueId value) const {
  const Op* op = f_.definition(value);
  return op && differs(*op);
}

ValueId ClusterLoads::in_other_block(Builder& b, ValueId value) {
  if (!differs(value)) return value;
  ValueId& other = others_[value];
  if (other) return other;
  Op op = *f_.definition(value);
  if (op.code == OpCode::tile_begin) {
    // The sum of the two tiles 2 n and 2 n + 1 is 4 n + 1.
    const int tile = f_[op.axis].tile;
    const ValueId pair = b.elementwise(OpCode::quotient, {value, b.integer(2 * tile)});
    const ValueId sum = b.add(b.mul(pair, b.integer(4 * tile)), b.integer(tile));
    return other = b.sub(sum, value);
  }
  if (needs_position(f_, op, first_axis_of(f_, AxisKind::parallel_tiles)) || op.body ||
      op.results.size() != 1)
    throw ScheduleError(
        {fmt::format("multicast_blocks = {} for {}", blocks_, f_.name),
         "the bounds of its loops are no arithmetic on the position of the output tile",
         "multicast_blocks = 1", op.where});
  op.results.clear();
  for_each_use(op, [&](ValueId& v) { v = in_other_block(b, v); });
  return other = b.make(std::move(op), f_[value].type);
}

void ClusterLoads::join_bounds(BlockId block) {
  rewrite_ops(f_, block, [&](Builder& b, OpId id) {
    const Op loop = f_[id];
    if (loop.code != OpCode::loop || !loop.bounds) return;
    const auto is_shared = [&](const Op& op) {
      return is_copied(f_, op) && f_[op.buffer].blocks > 1;
    };
    const ValueId begin = loop.operands[0], end = loop.operands[1];
    if (!any_op(f_, loop.body, is_shared) || (!differs(begin) && !differs(end))) return;
    const ValueId others_begin = in_other_block(b, begin), others_end = in_other_block(b, end);
    joined_[id] = {begin == others_begin ? begin : b.min(begin, others_begin),
                   end == others_end ? end : b.max(end, others_end)};
  });
}

std::vector<ValueId> ClusterLoads::bounds_of_loads(OpId id) const {
  if (const auto joined = joined_.find(id); joined != joined_.end()) return joined->second;
  const Op& loop = f_[id];
  return {loop.operands.begin(), loop.operands.begin() + loop.bounds};
}

void ClusterLoads::pass_other_tiles(BlockId block) {
  rewrite_ops(f_, block, [&](Builder& b, OpId id) {
    const auto joined = joined_.find(id);
    if (joined == joined_.end()) return;
    const Op loop = f_[id];
    std::vector<OpId> waits;
    for (OpId inner : f_[loop.body].ops)
      if (f_[inner].code == OpCode::wait) waits.push_back(inner);
    const auto pass_lower = [&] { pass_tiles(b, waits, joined->second[0], loop.operands[0]); };
    const auto pass_higher = [&] { pass_tiles(b, waits, loop.operands[1], joined->second[1]); };
    loop.descending ? pass_higher() : pass_lower();
    b.go_behind(id);
    loop.descending ? pass_lower() : pass_higher();
  });
}

void ClusterLoads::pass_tiles(Builder& b, const std::vector<OpId>& waits, ValueId begin,
                              ValueId end) {
  if (begin == end) return;
  Builder inside(f_, f_.add_block());
  f_.add_argument(inside.block(), {DType::i32, {}}, "tile");
  OpCopier copier(f_);
  for (OpId wait : waits) copier.copy(inside, wait);
  inside.append({.code = OpCode::yield});
  b.append({.code = OpCode::loop, .operands = {begin, end}, .body = inside.block(), .bounds = 2});
}

}  // namespace flashcore
