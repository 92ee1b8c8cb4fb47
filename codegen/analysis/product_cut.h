// Where a loop's body is cut, so that the products of two rounds can be in flight at once.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "dsl/ir/function.h"

namespace flashcore {

/// A loop's body in two halves. Late products take what the first half of the same round has
/// computed.
struct ProductCut {
  struct Late {
    ir::OpId dot;
    std::size_t carried;  ///< which carried value it makes the next of
    ir::OpId scaling;     ///< what it adds to is this of the carried value; none: the value itself
  };
  std::vector<Late> late;
  std::set<ir::OpId> late_ops;  ///< the products and what only they need: waits, views
  std::set<ir::OpId> first;     ///< the other products, and what they need

  /// Which late product makes the next of a carried value; late.size() if none does.
  [[nodiscard]] std::size_t late_of(std::size_t carried) const;
  [[nodiscard]] bool is_late(ir::OpId dot) const;
  [[nodiscard]] bool is_scaling(ir::OpId op) const;
};

/// None where every product takes loaded tiles, where a sum that rounds hand on is not made by one
/// late product alone, or where both halves read one slot, which would be held for two rounds.
std::optional<ProductCut> find_product_cut(const ir::Function& f, const ir::Op& loop);

}  // namespace flashcore
