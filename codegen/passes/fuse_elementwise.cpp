// Elementwise operations on register tiles of one shape, one behind the other, become a nest: one
// loop over the elements that a thread holds. What nobody outside reads is then no array, but one
// element at a time.
//
//   %x = mul %s, %scale                    %p = nest {
//   %y = sub %x, %max             ->         %x = mul %s, %scale
//   %p = exp2 %y                             %y = sub %x, %max
//                                            %q = exp2 %y
//                                            yield %q
//                                          }
//
// Operations of other shapes in between that do not depend on a nest go in front of it. A reduction
// of what nothing else reads joins.
#include <algorithm>
#include <set>
#include <vector>

#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

/// Ops that become one nest.
struct Fusion {
  std::vector<OpId> in_front, ops;
  std::size_t end = 0;  ///< position in the block behind all of these
};

/// An op that computes the elements of a tile in registers.
bool is_elementwise(const Function& f, OpId id) {
  const Op& op = f[id];
  return kind_of(op.code) == OpKind::elementwise && !f[op.results[0]].type.is_scalar() &&
         f[op.results[0]].layout.space == Space::registers;
}

/// A reduction by rows of a value of the group that nothing else reads.
bool reduces(const Function& f, OpId id, const std::set<ValueId>& made) {
  const Op& op = f[id];
  if (kind_of(op.code) != OpKind::reduction || !made.count(op.operands[0])) return false;
  const TileType& type = f[op.operands[0]].type;
  return type.axes.size() == 2 && type.axes[1] == op.axis &&
         count_uses(f)[op.operands[0].index] == 1;
}

Fusion group_from(const Function& f, const std::vector<OpId>& ops, std::size_t first) {
  Fusion group;
  const Value& like = f[f[ops[first]].results[0]];
  std::set<ValueId> made;
  std::vector<OpId> others;
  for (std::size_t at = first; at < ops.size(); ++at) {
    const Op& op = f[ops[at]];
    const bool depends =
        std::ranges::any_of(op.operands, [&](ValueId operand) { return made.count(operand) > 0; });
    const bool elementwise = is_elementwise(f, ops[at]);
    const bool joins = elementwise ? f[op.results[0]].type.axes == like.type.axes &&
                                         f[op.results[0]].layout == like.layout
                                   : reduces(f, ops[at], made);
    if (!joins) {
      const bool passes = elementwise || kind_of(op.code) == OpKind::source;
      if (depends || !passes) break;
      others.push_back(ops[at]);
      continue;
    }
    group.in_front.insert(group.in_front.end(), others.begin(), others.end());
    others.clear();
    group.ops.push_back(ops[at]);
    group.end = at + 1;
    made.insert(op.results[0]);
  }
  return group;
}

/// Appends the nest of some ops.
void fuse(Function& f, BlockId block, const std::vector<OpId>& ops, std::vector<OpId>& fused) {
  const auto in_nest = [&](OpId op) { return std::ranges::count(ops, op) > 0; };
  std::vector<ValueId> given, inside;  // what the nest gives, and that in there
  for (OpId op : ops) {
    const ValueId value = f[op].results[0];
    if (std::ranges::all_of(readers_of(f, block, value), in_nest)) continue;
    given.push_back(value);
    inside.push_back(replace_result(f, op, f[value].name));
  }
  for (OpId op : ops)
    for (std::size_t i = 0; i < given.size(); ++i) replace_use(f[op], given[i], inside[i]);
  const OpId nest = add_op_like(f,
                                {.code = OpCode::nest,
                                 .where = f[ops.back()].where,
                                 .body = build_region(Builder(f, {}), region_of(ops, inside))},
                                inside);
  for (std::size_t i = 0; i < given.size(); ++i) take_place(f, given[i], f[nest].results[i]);
  fused.push_back(nest);
}

void fuse_in(Function& f, BlockId block) {
  const std::vector<OpId> ops = f[block].ops;
  for (OpId id : ops)
    if (f[id].code != OpCode::nest)
      for (const BlockId region : Regions(f[id])) fuse_in(f, region);
  std::vector<OpId> fused;
  for (std::size_t at = 0; at < ops.size();) {
    if (!is_elementwise(f, ops[at])) {
      fused.push_back(ops[at++]);
      continue;
    }
    const Fusion group = group_from(f, ops, at);
    for (OpId other : group.in_front) {
      if (is_elementwise(f, other))
        fuse(f, block, {other}, fused);
      else
        fused.push_back(other);
    }
    fuse(f, block, group.ops, fused);
    at = group.end;
  }
  f[block].ops = std::move(fused);
}

}  // namespace

void fuse_elementwise(Function& f, const PassContext&) { fuse_in(f, f.body); }

}  // namespace flashcore
