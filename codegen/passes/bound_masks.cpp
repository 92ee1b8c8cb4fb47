// A mask is a `where(condition, x, neutral)`. For each loop the pass asks two things of it.
//
// May a tile whose condition fails everywhere be skipped? Yes, if with `neutral` in place of the tile
// the loop's region gives back the values it was given (NeutralAnalysis). Which tiles are those? With
// every comparison as a linear form that is >= 0 where it holds,
//
//   a c + rest >= 0,   c the position along the loop's axis, in [jT, jT + T - 1] for tile j,
//
// the largest `rest` over the rows of the block bounds the tiles that are not empty, and the smallest
// one the tiles on which the comparison holds everywhere. Both are floor divisions by |a| T, computed
// once a block before the loop.
#include <vector>

#include "codegen/analysis/affine.h"
#include "codegen/analysis/empty_tiles.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

/// A loop's bounds while they are being built. Invalid ids mean the natural bound.
struct Bounds {
  ValueId begin, full_begin, full_end, end;
};

class BoundBuilder {
 public:
  BoundBuilder(Builder& b, AxisId axis) : b_(b), f_(b.function()), axis_(axis) {
    tile_ = f_[axis].tile;
  }

  /// Narrows the bounds by a term. `skips`: empty tiles need not be visited.
  void narrow(const AffineForm& term, bool skips) {
    const std::int64_t a = term.positions.at(axis_), step = (a > 0 ? a : -a) * tile_;
    const std::int64_t reach = step - step / tile_;
    const ValueId most = rest(term, true), least = rest(term, false);
    if (a > 0) {
      // jT a + reach + most >= 0  and  jT a + least >= 0
      if (skips) raise(bounds_.begin, divide_up(negated(most, -reach), step));
      raise(bounds_.full_begin, divide_up(negated(least, 0), step));
    } else {
      // most - jT|a| >= 0  and  least - jT|a| - reach >= 0
      if (skips) lower(bounds_.end, plus(divide_down(most, step), 1));
      lower(bounds_.full_end, plus(divide_down(plus(least, -reach), step), 1));
    }
  }

  std::vector<ValueId> finish() {
    const ValueId zero = number(0), tiles = b_.tile_count(axis_);
    const auto clamp = [&](ValueId value, ValueId low, ValueId high) {
      return b_.elementwise(OpCode::max,
                            {low, b_.elementwise(OpCode::min, {value, high})});
    };
    const ValueId begin = bounds_.begin ? clamp(bounds_.begin, zero, tiles) : zero;
    const ValueId end = bounds_.end ? clamp(bounds_.end, begin, tiles) : tiles;
    const ValueId full_begin = bounds_.full_begin ? clamp(bounds_.full_begin, begin, end) : begin;
    const ValueId full_end = bounds_.full_end ? clamp(bounds_.full_end, full_begin, end) : end;
    name(begin, "_begin");
    name(end, "_end");
    name(full_begin, "_full_begin");
    name(full_end, "_full_end");
    return {begin, full_begin, full_end, end};
  }

 private:
  ValueId number(std::int64_t value) {
    return b_.constant(static_cast<double>(value), DType::i32);
  }
  ValueId plus(ValueId value, std::int64_t add) {
    return add ? b_.add(value, number(add)) : value;
  }
  /// -value + add
  ValueId negated(ValueId value, std::int64_t add) { return b_.sub(number(add), value); }
  ValueId divide_down(ValueId value, std::int64_t by) {
    return b_.elementwise(OpCode::div, {value, number(by)});
  }
  ValueId divide_up(ValueId value, std::int64_t by) { return divide_down(plus(value, by - 1), by); }
  void raise(ValueId& bound, ValueId value) {
    bound = bound ? b_.elementwise(OpCode::max, {bound, value}) : value;
  }
  void lower(ValueId& bound, ValueId value) {
    bound = bound ? b_.elementwise(OpCode::min, {bound, value}) : value;
  }
  void name(ValueId value, const char* suffix) {
    const OpCode code = f_.definition(value)->code;
    if (code != OpCode::constant && f_[value].name.empty())
      f_[value].name = f_[axis_].name + suffix;
  }

  /// The part of a form without the loop's axis, at its largest or smallest over the block's tile.
  ValueId rest(const AffineForm& term, bool largest) {
    ValueId total;
    const auto add = [&](ValueId value, std::int64_t factor) {
      if (factor == -1 && total) {
        total = b_.sub(total, value);
        return;
      }
      if (factor != 1) value = b_.mul(value, number(factor));
      total = total ? b_.add(total, value) : value;
    };
    for (const auto& [axis, factor] : term.positions) {
      if (axis == axis_) continue;
      add((factor > 0) == largest ? last_position(axis) : b_.tile_begin(axis), factor);
    }
    for (const auto& [scalar, factor] : term.scalars) add(scalar, factor);
    return total ? plus(total, term.constant) : number(term.constant);
  }

  /// The last position of the block's tile that exists.
  ValueId last_position(AxisId axis) {
    const ValueId end = b_.add(b_.tile_begin(axis), number(f_[axis].tile));
    return b_.sub(b_.elementwise(OpCode::min, {end, b_.extent(axis)}), number(1));
  }

  Builder& b_;
  Function& f_;
  AxisId axis_;
  std::int64_t tile_;
  Bounds bounds_;
};

/// Whether the form is known outside the loop: its scalars are not made inside.
bool known_outside(const Function& f, const Op& loop, const AffineForm& form) {
  bool outside = true;
  for_each_op(f, loop.body, [&](const Op& op, BlockId) {
    for (ValueId result : op.results)
      if (form.scalars.count(result)) outside = false;
  });
  for (ValueId argument : f[loop.body].arguments)
    if (form.scalars.count(argument)) outside = false;
  for (const auto& [axis, factor] : form.positions)
    if (axis != loop.axis && f[axis].kind != AxisKind::parallel_tiles) outside = false;
  return outside;
}

void bound_loop(Function& f, BlockId block, std::size_t position) {
  const std::vector<bool> observes = ops_of_probes(f);
  const OpId id = f[block].ops[position];
  const Op loop = f[id];
  const auto narrow_all = [&](Builder& b) {
    BoundBuilder builder(b, loop.axis);
    for (OpId inner : f[loop.body].ops) {
      const Op& op = f[inner];
      if (op.code != OpCode::where || !f[op.results[0]].type.has(loop.axis)) continue;
      if (!observes.empty() && observes[inner.index]) continue;
      AffineCondition condition = affine_condition(f, op.operands[0]);
      std::erase_if(condition.terms, [&](const AffineForm& form) {
        // A term that is the same for all tiles of the loop bounds nothing, and is no less in force.
        const bool drop = !known_outside(f, loop, form) || !form.positions.count(loop.axis);
        condition.complete = condition.complete && !drop;
        return drop;
      });
      if (condition.terms.empty()) continue;
      const bool skips = may_skip(f, loop, op);
      // Only a value of the mask's own shape can stand in for it.
      const bool same_shape = f[op.operands[1]].type == f[op.results[0]].type;
      for (const AffineForm& term : condition.terms) builder.narrow(term, skips);
      f[inner].masking = condition.complete && same_shape;
    }
    const std::vector<ValueId> bounds = builder.finish();
    Op& bounded = f[id];
    bounded.operands.insert(bounded.operands.begin(), bounds.begin(), bounds.end());
    bounded.bounds = 4;
  };
  insert_before(f, block, position, loop.where, narrow_all);
}

void bound_loops(Function& f, BlockId block) {
  for (std::size_t i = 0; i < f[block].ops.size(); ++i) {
    const OpId id = f[block].ops[i];
    if (!f[id].body) continue;
    bound_loops(f, f[id].body);
    const std::size_t before = f[block].ops.size();
    bound_loop(f, block, i);
    i += f[block].ops.size() - before;
  }
}

}  // namespace

void bound_masks(Function& f, const PassContext& context) {
  bound_loops(f, f.body);
  simplify(f, context);
}

}  // namespace flashcore
