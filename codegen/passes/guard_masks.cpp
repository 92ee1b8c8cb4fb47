// A mask whose guard (codegen/analysis/tile_guard.h) asks something of the tile is needed on few
// tiles. It becomes an `if`, and all that it alone reads stands in there:
//
//   %full = lt %tile, %full_end              %cut = ge %tile, %full_end
//   %seen = ge %row, %col                    %m = if %cut {
//   %or = logical_or %full, %seen              %seen = ge %row, %col
//   %m = where %or, %scores, -inf      ->      %hidden = where %seen, %scores, -inf
//                                              yield %hidden
//                                            } else {
//                                              yield %scores
//                                            }
//
// What a mask looks up by row or by column waits for no score. Behind a product in flight such
// lookups get an `if` of their own, in front of the wait for that product.
#include <algorithm>
#include <map>
#include <ranges>
#include <set>
#include <vector>

#include "codegen/analysis/tile_guard.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

class MaskGuarding {
 public:
  explicit MaskGuarding(Function& f) : f_(f), guards_(f) {}

  void visit(BlockId block) {
    const std::map<ValueId, ValueId> outer = std::exchange(opposites_, {});
    for (OpId id : std::vector(f_[block].ops)) {
      for (const BlockId region : Regions(f_[id])) visit(region);
      if (guards_.of(f_[id]))
        guard(block, id);
      else if (const AxisId axis = tail_of(f_[id]))
        guard_tail(block, id, axis);
    }
    opposites_ = outer;
  }

 private:
  /// The axis whose positions beyond its end a mask hides, if the block has one tile of it; else none.
  [[nodiscard]] AxisId tail_of(const Op& mask) const {
    if (mask.code != OpCode::where || f_[mask.results[0]].type.axes.size() != 2) return {};
    const Op* inside = definition_as(f_, mask.operands[0], OpCode::lt);
    const Op* index = inside ? definition_as(f_, inside->operands[0], OpCode::index) : nullptr;
    const Op* end = index ? definition_as(f_, inside->operands[1], OpCode::extent) : nullptr;
    const bool tail =
        end && end->axis == index->axis && f_[index->axis].kind == AxisKind::parallel_tiles;
    return tail ? index->axis : AxisId{};
  }

  void guard_tail(BlockId block, OpId mask, AxisId axis) {
    Builder b = before(f_, block, mask);
    const ValueId begin = b.tile_begin(axis);
    const ValueId end = b.elementwise(OpCode::add, {begin, b.constant(f_[axis].tile, DType::i32)});
    const ValueId cut = named(f_, b.elementwise(OpCode::lt, {b.extent(axis), end}), "partial");
    const std::vector<OpId> own = ops_of_mask(f_, block, mask);
    for (OpId id : own) std::erase(f_[block].ops, id);
    const ValueId result = f_[mask].results[0], from = f_[mask].operands[1];
    Builder in_front = before(f_, block, mask);
    const auto hide = [&](Builder& in) {
      for (OpId id : own) in.place(id);
      return make_like(in, Op(f_[mask]), {result});
    };
    take_place(f_, result, build_if(in_front, cut, hide, region_of({}, {from}), {result})[0]);
    in_front.remove(mask);
  }

  void guard(BlockId block, OpId mask) {
    std::vector<OpId> own = ops_of_mask(f_, block, mask);
    const ValueId guard = guards_.of(f_[mask]), from = f_[mask].operands[1];
    begin_lookups_early(block, mask, guard, own);
    const ValueId cut = opposite(block, mask, guard), result = f_[mask].results[0];
    for (OpId id : own) std::erase(f_[block].ops, id);
    Builder b = before(f_, block, mask);
    const auto hide = [&](Builder& in) {
      for (OpId id : own) in.place(id);
      Op inner = f_[mask];
      const ValueId condition = condition_behind_guard(f_, inner);
      if (!condition) return std::vector{inner.operands[2]};
      inner.operands[0] = condition;
      return make_like(in, std::move(inner), {result});
    };
    take_place(f_, result, build_if(b, cut, hide, region_of({}, {from}), {result})[0]);
    b.remove(mask);
  }

  /// Takes lookups by row or by column, and what their indices are made of, out of the mask's ops.
  /// Those by row and column take as many registers as scores do, and beside the test of a tanh
  /// none are left.
  void begin_lookups_early(BlockId block, OpId mask, ValueId guard, std::vector<OpId>& own) {
    const OpId wait = wait_in_front(block, mask);
    const bool tests = std::ranges::any_of(f_[block].ops, [&](OpId id) {
      return f_[id].code == OpCode::tanh || f_[id].code == OpCode::all_within;
    });
    if (!wait || tests) return;
    const std::vector<OpId> early = lookups_in(block, own);
    if (early.empty()) return;
    const auto is_early = [&](OpId id) { return std::ranges::count(early, id) > 0; };
    const ValueId cut = opposite(block, wait, guard);
    std::vector<ValueId> read;
    for (OpId id : early)
      if (!std::ranges::all_of(readers_of(f_, block, f_[id].results[0]), is_early))
        read.push_back(f_[id].results[0]);
    for (OpId id : early) {
      std::erase(own, id);
      std::erase(f_[block].ops, id);
    }
    Builder b = before(f_, block, wait);
    const std::vector<ValueId> found = build_if(
        b, cut,
        [&](Builder& in) {
          for (OpId id : early) {
            copy_sources(id, in);
            in.place(id);
          }
          return read;
        },
        [&](Builder& in) {
          std::vector<ValueId> nothing;
          for (ValueId value : read)
            nothing.push_back(make_like(in, {.code = OpCode::undefined}, {value})[0]);
          return nothing;
        });
    for (std::size_t i = 0; i < read.size(); ++i) {
      for (OpId id : own) std::ranges::replace(f_[id].operands, read[i], found[i]);
      std::ranges::replace(f_[mask].operands, read[i], found[i]);
    }
  }

  /// Sources are the same wherever they stand: an op that moves forward takes its own along.
  void copy_sources(OpId op, Builder& into) {
    for (std::size_t i = 0; i < f_[op].operands.size(); ++i)
      if (const ValueId operand = f_[op].operands[i]; is_source(f_, operand))
        f_[op].operands[i] = make_like(into, *f_.definition(operand), {operand})[0];
  }

  /// The last wait for products in front of an op; none where there is none.
  [[nodiscard]] OpId wait_in_front(BlockId block, OpId op) const {
    OpId wait;
    for (OpId id : f_[block].ops) {
      if (id == op) break;
      if (f_[id].code == OpCode::wait_products) wait = id;
    }
    return wait;
  }

  /// Lookups of vectors among a mask's ops that wait for nothing made in the block, and what they
  /// are made of. That itself is not read by anything else.
  std::vector<OpId> lookups_in(BlockId block, const std::vector<OpId>& own) const {
    std::set<ValueId> wanted, ready;
    std::vector<OpId> early;
    for (OpId id : own | std::views::reverse) {
      const Op& op = f_[id];
      if (f_[op.results[0]].type.axes.size() != 1 ||
          (op.code != OpCode::gather && !wanted.count(op.results[0])))
        continue;
      early.insert(early.begin(), id);
      wanted.insert(op.operands.begin(), op.operands.end());
    }
    std::erase_if(early, [&](OpId id) {
      const bool waits = std::ranges::any_of(f_[id].operands, [&](ValueId operand) {
        return made_in(f_, block, operand) && !is_source(f_, operand) && !ready.count(operand);
      });
      if (!waits) ready.insert(f_[id].results[0]);
      return waits;
    });
    return early;
  }

  /// The scalar that is true where a guard is false, made once a block. A mask may need it further in
  /// front than the masks before it did: then it is made there, and replaces the one that was made.
  ValueId opposite(BlockId block, OpId in_front_of, ValueId guard) {
    Builder b = before(f_, block, in_front_of);
    ValueId& known = opposites_[guard];
    if (known && position_of(f_, block, f_[known].definition) < b.position()) return known;
    const ValueId made = named(f_, guards_.build_opposite(b, guard), "masked");
    if (known) replace_uses(f_, known, made);
    return known = made;
  }

  Function& f_;
  TileGuards guards_;
  std::map<ValueId, ValueId> opposites_;  ///< by guard, in the block at hand
};

}  // namespace

void guard_masks(Function& f, const PassContext&) {
  MaskGuarding(f).visit(f.body);
  remove_dead_ops(f);
}

}  // namespace flashcore
