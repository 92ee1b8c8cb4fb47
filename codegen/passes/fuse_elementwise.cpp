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

class Fusion {
 public:
  explicit Fusion(Function& f) : f_(f) {}

  void run() { visit(f_.body); }

 private:
  void visit(BlockId block) {
    const std::vector<OpId> ops = f_[block].ops;
    for (OpId id : ops)
      if (f_[id].code != OpCode::nest)
        for (const BlockId region : Regions(f_[id])) visit(region);
    std::vector<OpId> fused;
    for (std::size_t at = 0; at < ops.size();) {
      if (!is_elementwise(ops[at])) {
        fused.push_back(ops[at++]);
        continue;
      }
      const Group group = group_from(ops, at);
      for (OpId other : group.in_front) {
        if (is_elementwise(other))
          fuse(block, {other}, fused);
        else
          fused.push_back(other);
      }
      fuse(block, group.ops, fused);
      at = group.end;
    }
    f_[block].ops = std::move(fused);
  }

  struct Group {
    std::vector<OpId> in_front, ops;
    std::size_t end = 0;  ///< position in the block behind all of these
  };

  Group group_from(const std::vector<OpId>& ops, std::size_t first) const {
    Group group;
    std::set<ValueId> made;
    std::vector<OpId> others;
    for (std::size_t at = first; at < ops.size(); ++at) {
      const Op& op = f_[ops[at]];
      const bool depends = std::ranges::any_of(
          op.operands, [&](ValueId operand) { return made.count(operand) > 0; });
      if (kind_of(op.code) == OpKind::source) {
        others.push_back(ops[at]);
        continue;
      }
      const bool joins =
          is_elementwise(ops[at]) ? same_shape(ops[at], ops[first]) : reduces(ops[at], made);
      if (!joins && (depends || !is_elementwise(ops[at]))) break;
      if (!joins) {
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

  /// An op that computes the elements of a tile in registers.
  [[nodiscard]] bool is_elementwise(OpId id) const {
    const Op& op = f_[id];
    return kind_of(op.code) == OpKind::elementwise && !f_[op.results[0]].type.is_scalar() &&
           f_[op.results[0]].layout.space == Space::registers;
  }

  [[nodiscard]] bool same_shape(OpId a, OpId b) const {
    const Value &x = f_[f_[a].results[0]], &y = f_[f_[b].results[0]];
    return x.type.axes == y.type.axes && x.layout == y.layout;
  }

  /// A reduction by rows of a value of the group that nothing else reads.
  [[nodiscard]] bool reduces(OpId id, const std::set<ValueId>& made) const {
    const Op& op = f_[id];
    if (kind_of(op.code) != OpKind::reduction || !made.count(op.operands[0])) return false;
    const TileType& type = f_[op.operands[0]].type;
    return type.axes.size() == 2 && type.axes[1] == op.axis &&
           count_uses(f_)[op.operands[0].index] == 1;
  }

  /// Appends the nest of some ops.
  void fuse(BlockId block, const std::vector<OpId>& ops, std::vector<OpId>& fused) {
    const auto in_nest = [&](OpId op) { return std::ranges::count(ops, op) > 0; };
    std::vector<ValueId> given, inside;  // what the nest gives, and that in there
    for (OpId op : ops) {
      const ValueId value = f_[op].results[0];
      if (std::ranges::all_of(readers_of(f_, block, value), in_nest)) continue;
      given.push_back(value);
      inside.push_back(replace_result(f_, op, f_[value].name));
    }
    for (OpId op : ops)
      for (std::size_t i = 0; i < given.size(); ++i) replace_use(f_[op], given[i], inside[i]);
    const OpId nest = add_op_like(f_,
                                  {.code = OpCode::nest,
                                   .where = f_[ops.back()].where,
                                   .body = build_region(Builder(f_, {}), region_of(ops, inside))},
                                  inside);
    for (std::size_t i = 0; i < given.size(); ++i) take_place(f_, given[i], f_[nest].results[i]);
    fused.push_back(nest);
  }

  Function& f_;
};

}  // namespace

void fuse_elementwise(Function& f, const PassContext&) { Fusion(f).run(); }

}  // namespace flashcore
