// A mask is a `where(condition, x, neutral)`. For each loop the pass answers two questions about
// it.
//
// May the loop skip a tile in which the condition fails everywhere? Yes, if with `neutral` in place
// of the tile every carried value stays as it was (NeutralAnalysis). Which tiles are those? Write
// every comparison as a linear form that is >= 0 where the comparison holds,
//
//   a c + rest >= 0,   c the position along the loop's axis, in [jT, jT + T - 1] for tile j.
//
// The largest `rest` over the rows of the block bounds the tiles that are not empty, and the
// smallest `rest` bounds the tiles in which the comparison holds everywhere. Both bounds are floor
// divisions by |a| T, computed once a block in front of the loop.
//
// A condition that is no conjunction of linear comparisons (documents, prefixes, windows with
// holes) may hide any tiles. For it the pass adds a block-sparsity scan between the bounds that are
// known: once a block the scan evaluates at every position what truth_over_rows says about the
// condition for the block's rows, and notes two bits a tile: whether the loop visits the tile, and
// whether the tile needs its mask.
#include <algorithm>
#include <set>
#include <vector>

#include "codegen/analysis/intervals.h"
#include "codegen/analysis/loop_masks.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"
#include "dsl/ir/conjuncts.h"

namespace flashcore {
namespace {

using namespace ir;

class BoundBuilder {
 public:
  BoundBuilder(Builder& b, AxisId axis) : b_(b), f_(b.function()), axis_(axis) {
    tile_ = f_[axis].tile;
  }

  /// Narrows the bounds by a term. `skips`: empty tiles need not be visited; `cuts`: tiles in which it
  /// does not hold everywhere are not full.
  void narrow(const AffineForm& term, bool skips, bool cuts = true) {
    const std::int64_t a = term.positions.at(axis_), step = (a > 0 ? a : -a) * tile_;
    const std::int64_t reach = step - step / tile_;
    const ValueId most = rest(term, true), least = rest(term, false);
    if (a > 0) {
      // jT a + reach + most >= 0  and  jT a + least >= 0
      if (skips) raise(begin_, divide_up(negated(most, -reach), step));
      if (cuts) raise(full_begin_, divide_up(negated(least, 0), step));
    } else {
      // most - jT|a| >= 0  and  least - jT|a| - reach >= 0
      if (skips) lower(end_, plus(divide_down(most, step), 1));
      if (cuts) lower(full_end_, plus(divide_down(plus(least, -reach), step), 1));
      const bool same_for_all_rows = term.positions.size() == 1 && term.quotients.empty();
      if (cuts && !(skips && same_for_all_rows)) cuts_last_alone_ = false;
    }
  }

  /// Narrows what is visited, and nothing else, by a term that two others imply.
  void skip(const AffineForm& term) {
    if (term.positions.empty() && term.quotients.empty() && term.scalars.empty() &&
        term.constant < 0)
      lower(end_, b_.integer(0));
    if (term.positions.count(axis_)) narrow(term, /*skips=*/true, /*cuts=*/false);
  }

  std::vector<ValueId> finish() {
    const ValueId zero = b_.integer(0), tiles = b_.tile_count(axis_);
    const auto bound = [&](ValueId wanted, ValueId natural, ValueId low, ValueId high,
                           const char* suffix) {
      const ValueId bound = wanted ? b_.max(low, b_.min(wanted, high)) : natural;
      if (!constant_of(f_, bound) && f_[bound].name.empty())
        f_[bound].name = f_[axis_].name + suffix;
      return bound;
    };
    const ValueId begin = bound(begin_, zero, zero, tiles, "_begin");
    const ValueId end = bound(end_, tiles, begin, tiles, "_end");
    const ValueId full_begin = bound(full_begin_, begin, begin, end, "_full_begin");
    if (full_end_ && cuts_last_alone_) raise(full_end_, b_.sub(end, b_.integer(1)));
    const ValueId full_end = bound(full_end_, end, full_begin, end, "_full_end");
    return {begin, full_begin, full_end, end};
  }

 private:
  ValueId plus(ValueId value, std::int64_t add) {
    return add ? b_.add(value, b_.integer(add)) : value;
  }
  /// -value + add
  ValueId negated(ValueId value, std::int64_t add) { return b_.sub(b_.integer(add), value); }
  ValueId divide_down(ValueId value, std::int64_t by) { return b_.div(value, b_.integer(by)); }
  ValueId divide_up(ValueId value, std::int64_t by) { return divide_down(plus(value, by - 1), by); }
  void raise(ValueId& bound, ValueId value) { bound = bound ? b_.max(bound, value) : value; }
  void lower(ValueId& bound, ValueId value) { bound = bound ? b_.min(bound, value) : value; }

  /// The part of a form without the loop's axis, at its largest or smallest over the block's tile.
  ValueId rest(const AffineForm& term, bool largest) {
    ValueId total;
    const auto add = [&](ValueId value, std::int64_t factor) {
      if (factor == -1 && total) {
        total = b_.sub(total, value);
        return;
      }
      if (factor != 1) value = b_.mul(value, b_.integer(factor));
      total = total ? b_.add(total, value) : value;
    };
    const auto end = [&](AxisId axis, std::int64_t factor) {
      return (factor > 0) == largest ? last_position(b_, axis) : b_.tile_begin(axis);
    };
    for (const auto& [axis, factor] : term.positions)
      if (axis != axis_) add(end(axis, factor), factor);
    for (const auto& [quotient, factor] : term.quotients) {
      const auto& [axis, by] = quotient;
      add(divide_down(end(axis, factor), by), factor);
    }
    for (const auto& [scalar, factor] : term.scalars) add(scalar, factor);
    return total ? plus(total, term.constant) : b_.integer(term.constant);
  }

  Builder& b_;
  Function& f_;
  AxisId axis_;
  std::int64_t tile_;
  ValueId begin_, full_begin_, full_end_, end_;  ///< so far; none: that of the axis
  /// What ends at one position for all rows, as the axis itself does, cuts no tile but the last.
  bool cuts_last_alone_ = true;
};

/// The words of a tile set hold eight tiles each. Tiles beyond them are visited and masked.
constexpr std::int64_t most_words = 512;

BufferId tile_set_for(Function& f, const Axis& axis) {
  const std::int64_t tiles =
      axis.extent.is_static() ? (axis.extent.value + axis.tile - 1) / axis.tile : most_words * 8;
  const auto words = static_cast<int>(std::clamp<std::int64_t>((tiles + 7) / 8, 1, most_words));
  return f.add_buffer({unused_buffer_name(f, axis.name + "_tiles"), DType::i32, 1, words, 1});
}

/// Whether the mask itself says that positions are on the axis, or tiles have no others.
bool ends_at_axis(const Function& f, const LoopMask& mask, AxisId axis) {
  if (!f[axis].may_overrun()) return true;
  return std::ranges::any_of(mask.condition.terms, [&](const AffineForm& term) {
    if (term.positions.size() != 1 || term.positions.begin()->second != -1 ||
        !term.quotients.empty())
      return false;
    if (const auto length = f[axis].fixed_length())
      return term.scalars.empty() && term.constant < *length;
    if (term.scalars.size() != 1 || term.constant >= 0) return false;
    const auto& [scalar, factor] = *term.scalars.begin();
    const Op* op = f.definition(scalar);
    return factor == 1 && op && op->code == OpCode::extent && op->axis == axis;
  });
}

/// Where nothing tells which tiles the other conditions cut, as of a dense mask, every tile has the mask
/// of these. The conditions that bound the loop become a mask of their own, which few tiles need:
///
///   %m = where and %others, %bounding, %x, -inf   ->   %n = where %others, %x, -inf
///                                                      %m = where %bounding, %n, -inf
///
/// False where there are no conditions of one kind, and nothing to separate.
bool separate_bounding(Function& f, const Op& loop, OpId where,
                       const std::vector<ValueId>& bounding, const std::vector<ValueId>& others) {
  if (bounding.empty() || others.empty()) return false;
  Builder b = before(f, loop.body, where);
  const auto all = [&](const std::vector<ValueId>& terms) {
    ValueId holds;
    for (const ValueId term : terms) holds = build_both(b, holds, term);
    return holds;
  };
  const ValueId seen = f[where].operands[1], hidden = f[where].operands[2];
  const ValueId inner = b.where(all(others), seen, hidden);
  f[where].operands = {all(bounding), inner, hidden};
  return true;
}

/// Builds the scan of a loop's tiles between two bounds, where its mask says something about
/// them. Which masks the tiles found to be visible everywhere can do without is noted in `guarded`.
BufferId build_scan(Builder& b, const Op& loop, const LoopMask& scanned,
                    const std::vector<ValueId>& others, const std::vector<LoopMask>& masks,
                    ValueId begin, ValueId end, std::set<OpId>& guarded) {
  Function& f = b.function();
  const BlockId region = f.add_block();
  f.add_argument(region, {DType::i32, {}}, "tile");
  Builder inside(f, region);
  const auto truth_of = truth_over_rows(b, inside, loop);
  ValueId maybe = truth_of(f[scanned.where].operands[0]).maybe;
  // The bounds of the loop are known without a scan.
  const bool says_more = std::ranges::any_of(
      others, [&](ValueId condition) { return !constant_of(f, truth_of(condition).maybe); });
  if (constant_of(f, maybe) || !says_more) return {};
  ValueId surely = inside.constant(1, DType::i1);
  guarded.clear();
  for (const LoopMask& mask : masks) {
    const ValueId holds = truth_of(f[mask.where].operands[0]).surely;
    if (!mask.droppable || is_number(f, holds, 0)) continue;
    guarded.insert(mask.where);
    surely = build_both(inside, surely, holds);
  }
  const Axis axis = f[loop.axis];
  if (!ends_at_axis(f, scanned, loop.axis)) {
    // Nothing is visible beyond the axis.
    const ValueId exists =
        inside.elementwise(OpCode::lt, {inside.index(loop.axis), inside.extent(loop.axis)});
    maybe = build_both(inside, maybe, exists);
  }
  inside.append({.code = OpCode::yield, .operands = {maybe, surely}});
  const BufferId tiles = tile_set_for(f, axis);
  b.append({.code = OpCode::scan_tiles,
            .operands = {begin, end},
            .axis = loop.axis,
            .buffer = tiles,
            .body = region,
            .bounds = 2});
  return tiles;
}

/// Whether no mask cuts the loop's tile: the scan's answer, or the comparison of its number with
/// the bounds of the tiles that are full, of which a guarded mask has narrowed one.
ValueId build_guard(Builder& b, const Op& loop, const std::vector<ValueId>& bounds) {
  Function& f = b.function();
  const ValueId tile = f[loop.body].arguments[0];
  if (loop.buffer)
    return b.make({.code = OpCode::tile_is_full, .operands = {tile}, .buffer = loop.buffer},
                  {DType::i1, {}});
  ValueId low, high;
  if (bounds[1] != bounds[0]) low = b.elementwise(OpCode::ge, {tile, bounds[1]});
  if (bounds[2] != bounds[3]) high = b.elementwise(OpCode::lt, {tile, bounds[2]});
  return build_both(b, low, high);
}

/// Lets the guarded masks of a loop hold wherever its tile is full, which changes none of them.
void guard_masks(Function& f, const Op loop, const std::set<OpId>& guarded,
                 const std::vector<ValueId>& bounds) {
  ValueId guard;
  for (OpId id : std::vector(f[loop.body].ops)) {
    if (!guarded.contains(id)) continue;
    Builder b = before(f, loop.body, id);
    if (!guard) guard = build_guard(b, loop, bounds);
    f[id].operands[0] = b.elementwise(OpCode::logical_or, {guard, f[id].operands[0]});
  }
}

void bound_loop(Builder& b, OpId id) {
  Function& f = b.function();
  const Op loop = f[id];
  const std::vector<LoopMask> masks = loop_masks(f, loop);
  std::set<OpId> guarded;
  BoundBuilder builder(b, loop.axis);
  for (const LoopMask& mask : masks) {
    if (mask.condition.terms.empty()) continue;
    for (const AffineForm& term : mask.condition.terms) builder.narrow(term, mask.skips);
    if (mask.skips)
      for (const AffineForm& term : without_rows(f, mask.condition.terms)) builder.skip(term);
    if (mask.condition.complete && mask.droppable) guarded.insert(mask.where);
  }
  const std::vector<ValueId> bounds = builder.finish();
  // The first mask that may skip tiles and does not follow from bounds.
  const auto scanned = std::ranges::find_if(
      masks, [](const LoopMask& mask) { return mask.skips && !mask.condition.complete; });
  if (scanned != masks.end()) {
    std::vector<ValueId> bounding, others;  // the conditions that bound the loop, and the others
    for (const ValueId conjunct : conjuncts_of(f, f[scanned->where].operands[0]))
      (bounds_loop(f, loop, conjunct) ? bounding : others).push_back(conjunct);
    const BufferId tiles =
        build_scan(b, loop, *scanned, others, masks, bounds.front(), bounds.back(), guarded);
    f[id].buffer = tiles;
    if (!tiles && separate_bounding(f, loop, scanned->where, bounding, others) &&
        scanned->droppable)
      guarded.insert(scanned->where);
  }
  Op& bounded = f[id];
  bounded.operands.insert(bounded.operands.begin(), {bounds.front(), bounds.back()});
  bounded.bounds = 2;
  guard_masks(f, f[id], guarded, bounds);
}

}  // namespace

void bound_masks(Function& f, const PassContext& context) {
  rewrite_inside_out(f, f.body, [&](Builder& b, OpId id) {
    if (f[id].code == OpCode::loop) bound_loop(b, id);
  });
  simplify(f, context);
}

}  // namespace flashcore
