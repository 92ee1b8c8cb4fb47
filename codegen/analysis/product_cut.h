// Where a loop's body is cut, so that products of two iterations can be in flight at once.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "dsl/ir/function.h"

namespace flashcore {

/// A loop's body in two halves. Second products take what the first half of the same iteration has
/// computed.
struct ProductCut {
  struct Second {
    ir::OpId dot;
    std::size_t carried;  ///< which carried value it makes the next of
    ir::OpId scaling;     ///< what it adds to is this of the carried value; none: the value itself
  };
  std::vector<Second> second;
  std::set<ir::OpId> second_ops;  ///< the products and what only they need: waits, views
  std::set<ir::OpId> first;       ///< the other products, and what they need

  /// Which second product makes the next of a carried value; second.size() if none does.
  [[nodiscard]] std::size_t second_of(std::size_t carried) const;
  [[nodiscard]] bool is_second(ir::OpId dot) const;
  [[nodiscard]] bool is_scaling(ir::OpId op) const;
};

/// None if every product takes loaded tiles, if anything but one second product changes a carried
/// accumulator, or if both halves read one slot, which would be held for two iterations.
std::optional<ProductCut> find_product_cut(const ir::Function& f, const ir::Op& loop);

}  // namespace flashcore
