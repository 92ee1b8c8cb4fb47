// A loop whose masks have a guard (codegen/analysis/tile_guard.h), which holds in the tiles from
// full_begin to full_end, becomes up to three loops: the middle one has no masks, the others have
// no guard. A side on which the guard has no bound gets no loop. The cut tiles on both sides have
// one copy of the body, in a loop that runs twice:
//
//   loop from 0 to 2 { cut tiles of this side ; the first time, those between }
//
// Without peel_masks such a loop stays whole, and tests the guard once a tile; or has no masks, if all of
// its tiles are full: where the end of the axis cuts the last tile alone, and overlap_products has taken
// that in front of the loop. (A loop that visits no tile has its price too: with peel_masks ptxas makes
// other code of the loop behind it, 2 % faster at head_dim 128.)
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "codegen/analysis/tile_guard.h"
#include "codegen/passes/copy_ops.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

/// Replaces a `where` by one of its values. Reductions and stores need the layout of their operand,
/// and a source such as a constant has none: for them the op stays, and computes that value.
void settle(Function& f, Op& where, ValueId value) {
  const ValueId result = where.results[0];
  const Op* made_by = f.definition(value);
  const auto by_layout = [&](const Op& op) {
    return (kind_of(op.code) == OpKind::reduction || op.code == OpCode::store) && reads(op, result);
  };
  if (made_by && kind_of(made_by->code) == OpKind::source && any_op(f, f.body, by_layout)) {
    where.code = OpCode::max;
    where.operands = {value, value};
  } else {
    replace_uses(f, result, value);
  }
}

/// Every `where` of a loop's body that has the guard of these tiles is what it is where that holds, or
/// where not. Another condition that all elements share, as a score has one of its head, is no guard.
void settle_guards(Function& f, BlockId body, const GuardedRange& full, bool holds) {
  for (OpId id : f[body].ops) {
    Op& op = f[id];
    const ValueId guard = guard_of(f, op);
    if (!guard || guarded_range(f, guard, f[body].arguments[0]) != full) continue;
    if (holds)
      settle(f, op, op.operands[1]);
    else if (const ValueId condition = condition_behind_guard(f, op))
      op.operands[0] = condition;
    else
      settle(f, op, op.operands[2]);
  }
}

/// Whether two scalars are made in the same way.
bool is_same(const Function& f, ValueId a, ValueId b) {
  if (a == b) return true;
  const Op *one = f.definition(a), *other = f.definition(b);
  if (!one || !other || one->code != other->code) return false;
  if (one->code == OpCode::constant) return one->number == other->number;
  return kind_of(one->code) == OpKind::elementwise &&
         std::ranges::equal(one->operands, other->operands,
                            [&](ValueId x, ValueId y) { return is_same(f, x, y); });
}

/// Whether one scalar is known to be no greater than another, by the maxima, minima and differences
/// they are.
bool at_most(const Function& f, ValueId value, ValueId bound) {
  if (is_same(f, value, bound)) return true;
  const auto below = [&](ValueId operand) { return at_most(f, operand, bound); };
  const auto above = [&](ValueId operand) { return at_most(f, value, operand); };
  const Op *op = f.definition(value), *limit = f.definition(bound);
  if (op && op->code == OpCode::sub) {
    const double* less = constant_of(f, op->operands[1]);
    if (less && *less >= 0 && below(op->operands[0])) return true;
  }
  if (op && op->code == OpCode::min && std::ranges::any_of(op->operands, below)) return true;
  if (op && op->code == OpCode::max && std::ranges::all_of(op->operands, below)) return true;
  return limit && ((limit->code == OpCode::max && std::ranges::any_of(limit->operands, above)) ||
                   (limit->code == OpCode::min && std::ranges::all_of(limit->operands, above)));
}

/// Some tiles of a loop, which are next to each other.
struct Range {
  ValueId begin, end;
  bool full;
};

class Peeling {
 public:
  Peeling(Function& f, const Op& loop, const GuardedRange& full)
      : f_(f),
        loop_(loop),
        full_(full),
        carried_(loop.operands.begin() + loop.bounds, loop.operands.end()) {}

  /// Puts the parts in the place of the loop.
  void run(Builder& b, OpId id) {
    const std::vector<Range> ranges = ranges_of_loop(b);
    if (ranges.size() == 3)
      put_loop_over_sides(b, ranges);
    else
      for (const Range& range : ranges) copy(b, range);
    b.remove(id);
    for (std::size_t i = 0; i < loop_.results.size(); ++i)
      replace_uses(f_, loop_.results[i], carried_[i]);
    for (const auto& [body, holds] : settled_) settle_guards(f_, body, full_, holds);
  }

 private:
  /// In the order of their tiles.
  std::vector<Range> ranges_of_loop(Builder& b) const {
    const ValueId begin = loop_.operands[0], end = loop_.operands[1];
    const auto inside = [&](ValueId value) {
      if (!at_most(f_, value, end)) value = b.min(value, end);
      if (!at_most(f_, begin, value)) value = b.max(value, begin);
      return value;
    };
    Range full{begin, end, true};
    std::vector<Range> ranges;
    if (full_.begin) {
      full.begin = inside(full_.begin);
      ranges.push_back({begin, full.begin, false});
    }
    if (full_.end) full.end = inside(full_.end);
    ranges.push_back(full);
    if (full_.end) ranges.push_back({full.end, end, false});
    if (loop_.descending) std::reverse(ranges.begin(), ranges.end());
    return ranges;
  }

  /// A loop over tiles of one part. What it carries goes on from, and becomes, what is carried now.
  void copy(Builder& b, const Range& range) {
    const BlockId body = OpCopier(f_).copy_region(loop_.body);
    put(b, loop_, range.begin, range.end, body);
    settled_.emplace_back(body, range.full);
  }

  void put(Builder& b, Op op, ValueId begin, ValueId end, BlockId body) {
    op.operands = {begin, end};
    op.operands.insert(op.operands.end(), carried_.begin(), carried_.end());
    op.body = body;
    carried_ = make_like(b, std::move(op), loop_.results);
  }

  void put_loop_over_sides(Builder& b, const std::vector<Range>& ranges) {
    const ValueId zero = b.integer(0), two = b.integer(2);
    Builder inside(f_, f_.add_block());
    std::vector<ValueId> arguments;
    for (ValueId own : f_[loop_.body].arguments) arguments.push_back(add_value_like(f_, own));
    f_[inside.block()].arguments = arguments;
    f_[arguments[0]].name = "side";
    const std::vector<ValueId> outer =
        std::exchange(carried_, {arguments.begin() + 1, arguments.end()});
    const ValueId first = inside.elementwise(OpCode::eq, {arguments[0], zero});
    Range cut{.full = false}, between = ranges[1];
    cut.begin = inside.where(first, ranges[0].begin, ranges[2].begin);
    cut.end = inside.where(first, ranges[0].end, ranges[2].end);
    between.end = inside.where(first, between.end, between.begin);
    copy(inside, cut);
    copy(inside, between);
    inside.append({.code = OpCode::yield, .operands = carried_});
    carried_ = outer;
    put(b, {.code = OpCode::loop, .where = loop_.where, .bounds = 2}, zero, two, inside.block());
  }

  Function& f_;
  const Op loop_;
  const GuardedRange full_;
  std::vector<ValueId> carried_;
  std::vector<std::pair<BlockId, bool>> settled_;  ///< of a part: its body, and whether it is full
};

/// Whether the guard holds in all tiles of a loop.
bool is_full(const Function& f, const Op& loop, const GuardedRange& full) {
  return (!full.begin || at_most(f, full.begin, loop.operands[0])) &&
         (!full.end || at_most(f, loop.operands[1], full.end));
}

/// The range of the guard that a loop's masks have, if it has one.
std::optional<GuardedRange> guarded_tiles(const Function& f, const Op& loop) {
  for (OpId id : f[loop.body].ops)
    if (const ValueId guard = guard_of(f, f[id]))
      if (const auto range = guarded_range(f, guard, f[loop.body].arguments[0])) return range;
  return std::nullopt;
}

}  // namespace

void peel_loops(Function& f, const PassContext& context) {
  // The parts of a loop are copies of its finished body.
  rewrite_inside_out(f, f.body, [&](Builder& b, OpId id) {
    const Op op = f[id];
    if (op.code != OpCode::loop) return;
    const auto full = guarded_tiles(f, op);
    if (!context.schedule.peel_masks) {
      if (full && is_full(f, op, *full)) settle_guards(f, op.body, *full, true);
      return;
    }
    if (op.buffer)
      context.note_refusal(fmt::format("peel_masks = true in the loop over {}", f[op.axis].name),
                           "tiles that a scan finds to be full need not be neighbours");
    else if (full)
      Peeling(f, op, *full).run(b, id);
  });
  remove_dead_ops(f);
}

}  // namespace flashcore
