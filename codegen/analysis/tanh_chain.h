// What stands around the tanh of a capped score, and is computed with it element by element:
//
//   %x = mul %scores, %factor            %y = fma %tanh, %times, %plus
//   %tanh = tanh %x                      %p = exp2 %y
//   %t = where (ne %x, -inf), %tanh, -inf      %sum = reduce_sum %p along cols
//
// Of these only the tanh has to be there.
#pragma once

#include <optional>
#include <vector>

#include "codegen/analysis/tile_guard.h"
#include "dsl/ir/function.h"

namespace flashcore {

struct TanhChain {
  ir::ValueId from;     ///< what the factor multiplies
  ir::ValueId factor;   ///< a scalar; none: 1
  ir::ValueId times;    ///< a scalar behind the tanh; none: nothing is multiplied and added
  ir::ValueId plus;     ///< a value a row
  bool masked = false;  ///< minus infinity stays minus infinity
  bool raised = false;  ///< 2 to the power of what there is so far
  ir::ValueId value;    ///< what the chain makes of an element
  ir::OpId sum;         ///< adds up the values of a row; none
  /// The mask that hides a part of what `from` is, if nothing else reads what it leaves, and what
  /// it hides a part of: else `from` itself.
  ir::OpId mask;
  ir::ValueId raw;

  /// where(guard, s, reduce_sum r), of the sum s of values and the values r as a product takes
  /// them; or where(guard, 0, reduce_sum(r - values)), which is `apart`.
  struct Rounding {
    ir::OpId chosen;
    DType to;
    bool apart = false;
  };
  std::optional<Rounding> rounding;
};

/// The chains of a block, in order. A tanh that a mask alone reads is none: it is computed where
/// the mask is.
std::vector<TanhChain> tanh_chains(const ir::Function& f, ir::BlockId block,
                                   const TileGuards& guards);

}  // namespace flashcore
