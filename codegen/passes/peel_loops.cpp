// A loop whose masks have a guard (codegen/analysis/tile_guard.h), which holds in the tiles from
// full_begin to full_end, becomes up to three loops: the middle one has no masks, the others have
// no guard. A side on which the guard has no bound gets no loop. The cut tiles on both sides have
// one copy of the body, in a loop that runs twice:
//
//   loop from 0 to 2 { cut tiles of this side ; the first time, those between }
//
// Without peel_masks such a loop stays whole, and tests the guard once a tile.
#include <algorithm>
#include <optional>
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

/// Whether one scalar is known to be no greater than another, by the maxima and minima they are.
bool at_most(const Function& f, ValueId value, ValueId bound) {
  if (value == bound) return true;
  const Op *op = f.definition(value), *limit = f.definition(bound);
  const auto below = [&](ValueId operand) { return at_most(f, operand, bound); };
  if (op && op->code == OpCode::min && std::ranges::any_of(op->operands, below)) return true;
  if (op && op->code == OpCode::max && std::ranges::all_of(op->operands, below)) return true;
  return limit && limit->code == OpCode::max &&
         std::ranges::any_of(limit->operands,
                             [&](ValueId operand) { return at_most(f, value, operand); });
}
bool at_least(const Function& f, ValueId value, ValueId bound) {
  if (value == bound) return true;
  const Op* op = f.definition(value);
  return op && op->code == OpCode::max && std::ranges::any_of(op->operands, [&](ValueId operand) {
           return at_least(f, operand, bound);
         });
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

  /// Puts the parts in the place of the loop, which stands in `block` at `position`.
  void run(BlockId block, std::size_t position) {
    std::vector<Range> ranges;
    ValueId zero, two;
    position += insert_before(f_, block, position, loop_.where, [&](Builder& b) {
      ranges = ranges_of_loop(b);
      if (ranges.size() == 3) zero = b.constant(0, DType::i32), two = b.constant(2, DType::i32);
    });
    std::vector<OpId> copies;
    if (ranges.size() == 3)
      copies.push_back(loop_over_sides(ranges, zero, two));
    else
      for (const Range& range : ranges) copies.push_back(copy(range));
    auto& ops = f_[block].ops;
    ops.erase(ops.begin() + static_cast<std::ptrdiff_t>(position));
    ops.insert(ops.begin() + static_cast<std::ptrdiff_t>(position), copies.begin(), copies.end());
    for (std::size_t i = 0; i < loop_.results.size(); ++i)
      replace_uses(f_, loop_.results[i], carried_[i]);
    for (const auto& [body, holds] : settled_) settle_guards(f_, body, full_, holds);
  }

 private:
  /// In the order of their tiles.
  std::vector<Range> ranges_of_loop(Builder& b) const {
    const ValueId begin = loop_.operands[0], end = loop_.operands[1];
    const auto inside = [&](ValueId value) {
      if (!at_most(f_, value, end))
        value = as_uniform(f_, b.elementwise(OpCode::min, {value, end}));
      if (!at_least(f_, value, begin))
        value = as_uniform(f_, b.elementwise(OpCode::max, {value, begin}));
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
  OpId copy(const Range& range) {
    const OpId copied = append(loop_, range.begin, range.end, OpCopier(f_).copy_region(loop_.body));
    settled_.push_back({f_[copied].body, range.full});
    return copied;
  }

  OpId append(Op op, ValueId begin, ValueId end, BlockId body) {
    op.operands = {begin, end};
    op.operands.insert(op.operands.end(), carried_.begin(), carried_.end());
    op.body = body;
    op.results.clear();
    const OpId id(f_.ops.size());
    for (std::size_t i = 0; i < loop_.results.size(); ++i) {
      const ValueId result = add_value_like(f_, loop_.results[i]);
      f_[result].definition = id;
      op.results.push_back(result);
      carried_[i] = result;
    }
    f_.ops.push_back(std::move(op));
    return id;
  }

  OpId loop_over_sides(const std::vector<Range>& ranges, ValueId zero, ValueId two) {
    const BlockId body = f_.add_block();
    const std::vector<ValueId>& own = f_[loop_.body].arguments;
    std::vector<ValueId> arguments;
    for (ValueId like : std::vector(own)) {
      const Value value = f_[like];
      arguments.push_back(f_.add_argument(body, value.type, value.name));
      f_[arguments.back()].layout = value.layout;
    }
    f_[arguments[0]].name = "side";
    const std::vector<ValueId> outer =
        std::exchange(carried_, {arguments.begin() + 1, arguments.end()});
    Range cut{.full = false}, between = ranges[1];
    insert_before(f_, body, 0, loop_.where, [&](Builder& b) {
      const ValueId first = as_uniform(f_, b.elementwise(OpCode::eq, {arguments[0], zero}));
      const auto either = [&](ValueId now, ValueId then) {
        return as_uniform(f_, b.elementwise(OpCode::where, {first, now, then}));
      };
      cut.begin = either(ranges[0].begin, ranges[2].begin);
      cut.end = either(ranges[0].end, ranges[2].end);
      between.end = either(between.end, between.begin);
    });
    const OpId side = copy(cut), rest = copy(between);
    const OpId yield = f_.add_op(Op{.code = OpCode::yield, .operands = carried_}, {});
    for (OpId id : {side, rest, yield}) f_[body].ops.push_back(id);
    carried_ = outer;
    Op sides{.code = OpCode::loop, .where = loop_.where};
    sides.bounds = 2;
    return append(std::move(sides), zero, two, body);
  }

  Function& f_;
  const Op loop_;
  const GuardedRange full_;
  std::vector<ValueId> carried_;
  struct Settled {
    BlockId body;
    bool holds;
  };
  std::vector<Settled> settled_;
};

/// The range of the guard that a loop's masks have, if it has one.
std::optional<GuardedRange> guarded_tiles(const Function& f, const Op& loop) {
  for (OpId id : f[loop.body].ops)
    if (const ValueId guard = guard_of(f, f[id]))
      if (const auto range = guarded_range(f, guard, f[loop.body].arguments[0])) return range;
  return std::nullopt;
}

/// From the inside out: the parts of a loop are copies of its finished body.
void peel_block(Function& f, BlockId block, const PassContext& context) {
  for (std::size_t i = 0; i < f[block].ops.size(); ++i) {
    const OpId id = f[block].ops[i];
    if (f[id].code != OpCode::scan_tiles)
      for (const BlockId region : Regions(f[id])) peel_block(f, region, context);
    const Op op = f[id];
    if (op.code != OpCode::loop) continue;
    if (op.buffer) {
      context.note_refusal(fmt::format("peel_masks = true in the loop over {}", f[op.axis].name),
                           "tiles that a scan finds to be full need not be neighbours");
      continue;
    }
    if (const auto full = guarded_tiles(f, op)) {
      const std::size_t before = f[block].ops.size();
      Peeling(f, op, *full).run(block, i);
      i += f[block].ops.size() - before;
    }
  }
}

}  // namespace

void peel_loops(Function& f, const PassContext& context) {
  if (context.schedule.peel_masks) peel_block(f, f.body, context);
  remove_dead_ops(f);
}

}  // namespace flashcore
