// Proves that some positions of a tile contribute nothing.
//
// Suppose that some values are known at these positions: a masked score is -inf, an element loaded
// from beyond a tensor is 0. Then exp2(-inf - m) is 0 for any finite m, a sum stays the same if 0
// is added, and a maximum if -inf is taken in. The analysis propagates such facts through the
// program. With them two passes decide, for any program, what a hand-written kernel hard-codes for
// a softmax: whether a tail needs a mask (mask_tails), and whether a loop may skip a tile that is
// masked everywhere (bound_masks).
//
// Symbols stand for finite numbers. Where one is infinite or NaN, the result of the program is NaN
// or infinite with or without the positions in question.
#pragma once

#include <map>
#include <optional>

#include "dsl/ir/function.h"

namespace flashcore {

/// A number, the value of another (row) value, or nothing known.
struct Fact {
  std::optional<double> number;
  ir::ValueId symbol;

  static Fact of(double number) { return {number, {}}; }
  static Fact same_as(ir::ValueId value) { return {std::nullopt, value}; }
  [[nodiscard]] bool is(double value) const { return number && *number == value; }
  [[nodiscard]] bool known() const { return number || symbol; }
  bool operator==(const Fact&) const = default;
};

class NeutralAnalysis {
 public:
  enum class Positions {
    beyond_axis,  ///< single elements past the end of `axis`: values without the axis are symbols
    whole_tile,   ///< a whole tile of `axis`: reductions and products over it are evaluated too
  };

  NeutralAnalysis(const ir::Function& f, ir::AxisId axis, Positions positions)
      : f_(f), axis_(axis), positions_(positions) {}

  void assume(ir::ValueId value, Fact fact) { facts_[value] = fact; }
  Fact evaluate(ir::ValueId value);

 private:
  Fact derive(ir::ValueId value);

  const ir::Function& f_;
  ir::AxisId axis_;
  Positions positions_;
  std::map<ir::ValueId, Fact> facts_;
};

/// Whether an iteration leaves all carried values as they are, and writes nothing but probes, if
/// `mask`, a `where` of the loop's region, takes its neutral value everywhere: then the loop may
/// skip the tile.
bool may_skip(const ir::Function& f, const ir::Op& loop, const ir::Op& mask);

/// The number that every element of `value` has on tiles of the loop that are not visited because a
/// mask empties them. Nothing if there is no such number, or masks disagree.
std::optional<double> value_if_skipped(const ir::Function& f, const ir::Op& loop,
                                       ir::ValueId value);

}  // namespace flashcore
