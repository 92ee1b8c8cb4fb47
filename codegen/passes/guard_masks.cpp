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

  void run() {
    visit(f_.body);
    remove_dead_ops(f_);
  }

 private:
  void visit(BlockId block) {
    const std::map<ValueId, ValueId> outer = std::exchange(opposites_, {});
    for (std::size_t i = 0; i < f_[block].ops.size(); ++i) {
      const OpId id = f_[block].ops[i];
      for (const BlockId region : Regions(f_[id])) visit(region);
      if (guards_.of(f_[id])) i = guard(block, id);
    }
    opposites_ = outer;
  }

  /// Returns where the `if` stands.
  std::size_t guard(BlockId block, OpId mask) {
    std::vector<OpId> own = ops_of_mask(f_, block, mask);
    const ValueId guard = guards_.of(f_[mask]), from = f_[mask].operands[1];
    begin_lookups_early(block, mask, guard, own);
    const ValueId cut = opposite(block, position_of(f_, block, mask), guard);
    for (OpId id : own) std::erase(f_[block].ops, id);
    const std::size_t at = position_of(f_, block, mask);

    Op choice{.code = OpCode::if_, .operands = {cut}, .where = f_[mask].where};
    choice.body = f_.add_block();
    choice.otherwise = f_.add_block();
    f_[choice.body].ops = std::move(own);
    ValueId hidden = f_[mask].operands[2];
    if (const ValueId condition = condition_behind_guard(f_, f_[mask])) {
      hidden = add_value_like(f_, f_[mask].results[0]);
      Op inner = f_[mask];
      inner.operands[0] = condition;
      inner.results = {hidden};
      append(choice.body, std::move(inner));
    }
    append(choice.body, {.code = OpCode::yield, .operands = {hidden}});
    append(choice.otherwise, {.code = OpCode::yield, .operands = {from}});
    choice.results = f_[mask].results;
    f_[mask] = std::move(choice);
    return at;
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
    Op choice{.code = OpCode::if_, .where = f_[mask].where};
    choice.operands = {opposite(block, position_of(f_, block, wait), guard)};
    choice.body = f_.add_block();
    choice.otherwise = f_.add_block();
    Op found{.code = OpCode::yield}, nothing{.code = OpCode::yield};
    std::vector<ValueId> read;
    for (OpId id : early)
      if (!std::ranges::all_of(readers_of(f_, block, f_[id].results[0]), is_early))
        read.push_back(f_[id].results[0]);
    for (OpId id : early) {
      std::erase(own, id);
      std::erase(f_[block].ops, id);
      copy_sources(id, choice.body);
      f_[choice.body].ops.push_back(id);
    }
    for (ValueId value : read) {
      found.operands.push_back(value);
      choice.results.push_back(add_value_like(f_, value));
      append(choice.otherwise, {.code = OpCode::undefined, .results = {add_value_like(f_, value)}});
      nothing.operands.push_back(last_of(f_, choice.otherwise).results[0]);
    }
    append(choice.body, std::move(found));
    append(choice.otherwise, std::move(nothing));
    for (std::size_t i = 0; i < read.size(); ++i)
      for (OpId id : own) std::ranges::replace(f_[id].operands, read[i], choice.results[i]);
    for (std::size_t i = 0; i < read.size(); ++i)
      std::ranges::replace(f_[mask].operands, read[i], choice.results[i]);
    const OpId id = append(block, std::move(choice));
    auto& ops = f_[block].ops;
    ops.pop_back();
    ops.insert(std::ranges::find(ops, wait), id);
  }

  /// Sources are the same wherever they stand: an op that moves forward takes its own along.
  void copy_sources(OpId op, BlockId into) {
    for (std::size_t i = 0; i < f_[op].operands.size(); ++i) {
      const ValueId operand = f_[op].operands[i];
      const Op* source = f_.definition(operand);
      if (!source || kind_of(source->code) != OpKind::source) continue;
      Op copied = *source;
      copied.results = {add_value_like(f_, operand)};
      const OpId id = append(into, std::move(copied));
      f_[op].operands[i] = f_[id].results[0];
    }
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
    std::set<ValueId> made_here, wanted, ready;
    for (OpId id : f_[block].ops) made_here.insert(f_[id].results.begin(), f_[id].results.end());
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
        const Op* op = f_.definition(operand);
        const bool source = op && kind_of(op->code) == OpKind::source;
        return made_here.count(operand) && !source && !ready.count(operand);
      });
      if (!waits) ready.insert(f_[id].results[0]);
      return waits;
    });
    return early;
  }

  /// The scalar that is true where a guard is false, made once a block. A mask may need it further in
  /// front than the masks before it did: then it is made there, and replaces the one that was made.
  ValueId opposite(BlockId block, std::size_t position, ValueId guard) {
    ValueId& known = opposites_[guard];
    if (known && position_of(f_, block, f_[known].definition) < position) return known;
    ValueId made;
    insert_before(f_, block, position, f_[f_[guard].definition].where,
                  [&](Builder& b) { made = guards_.build_opposite(b, guard); });
    f_[made].name = "masked";
    if (known) replace_uses(f_, known, made);
    return known = made;
  }

  /// Appends an op whose results exist.
  OpId append(BlockId block, Op op) {
    const OpId id(f_.ops.size());
    for (ValueId result : op.results) f_[result].definition = id;
    f_.ops.push_back(std::move(op));
    f_[block].ops.push_back(id);
    return id;
  }

  Function& f_;
  TileGuards guards_;
  std::map<ValueId, ValueId> opposites_;  ///< by guard, in the block at hand
};

}  // namespace

void guard_masks(Function& f, const PassContext&) { MaskGuarding(f).run(); }

}  // namespace flashcore
