// Guards of masks: scalars that say of a loop's tile that no mask cuts it.
//
//   %full = lt %tile, %full_end
//   %seen = logical_or %full, %visible
//   %masked = where %seen, %scores, -inf
//
// The condition means the same without the guard. With it a pass can split the loop, or test the
// guard once a tile, and leave the mask out. A scalar that asks something else, as a score's condition
// on its head does, is no guard. And the operations that only a mask needs, which a tile that it does
// not cut can do without.
#pragma once

#include <optional>
#include <vector>

#include "dsl/ir/builder.h"
#include "dsl/ir/function.h"

namespace flashcore {

/// The scalar that, where it holds, makes a `where` its second operand; none where there is none.
ir::ValueId guard_of(const ir::Function& f, const ir::Op& op);

/// What is left of a `where`'s condition where its guard does not hold; none: the guard is all.
ir::ValueId condition_behind_guard(const ir::Function& f, const ir::Op& op);

/// The tiles [begin, end) on which a guard holds, as scalars known in front of the loop; a side
/// without a bound reaches to the loop's own.
struct GuardedRange {
  ir::ValueId begin, end;
  bool operator==(const GuardedRange&) const = default;
};

/// The range of a guard that compares the tile's number; none for any other guard.
std::optional<GuardedRange> guarded_range(const ir::Function& f, ir::ValueId guard,
                                          ir::ValueId tile);

/// The guards of a program that ask something of the tile at hand: they compare its number, or ask
/// what a block-sparsity scan has found.
class TileGuards {
 public:
  explicit TileGuards(const ir::Function& f);

  /// The guard of a mask, if it is such a one.
  [[nodiscard]] ir::ValueId of(const ir::Op& mask) const;
  /// The tiles on which it holds; none for what a scan has found.
  [[nodiscard]] std::optional<GuardedRange> range(ir::ValueId guard) const;
  /// Builds the scalar that holds where the guard does not.
  ir::ValueId build_opposite(ir::Builder& b, ir::ValueId guard) const;

 private:
  const ir::Function& f_;
  std::vector<ir::ValueId> tiles_;  ///< the numbers of current tiles
};

/// The ops of a block, in order, that compute something in registers which only the mask (a
/// `where`) and such ops read; what the mask hides a part of is none of them.
std::vector<ir::OpId> ops_of_mask(const ir::Function& f, ir::BlockId block, ir::OpId mask);

}  // namespace flashcore
