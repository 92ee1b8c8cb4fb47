// What goes over the columns of tiles in registers, and so may go over a strip of them at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dsl/ir/function.h"

namespace flashcore {

enum class ColumnWork : std::uint8_t {
  none,
  elements,   ///< makes an element of the same column's
  reduction,  ///< adds a column up, or compares it, into a value of its row
  packing,    ///< rounds a column and packs it for a product
};

/// What an op does with each column of a tile without a look at the others.
ColumnWork column_work(const ir::Function& f, const ir::Op& op);

/// Ops that go over a strip of columns together.
struct ColumnStep {
  ColumnWork work;
  std::vector<std::size_t> positions;  ///< in their block
  /// How many times the distance it is behind the first step: exponentials are that behind what
  /// they are of, and so is what reads them. No step has a lower one than the step before it, so
  /// that each column meets its ops in order.
  int level = 0;
};

/// The steps of ops that stand behind each other but for sources.
std::vector<ColumnStep> column_steps(const ir::Function& f, ir::BlockId block,
                                     const std::vector<std::size_t>& positions);

}  // namespace flashcore
