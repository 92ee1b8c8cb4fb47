// Reading an operand under the axes of a result it broadcasts to.
#pragma once

#include <cstdint>

#include "runtime/reference/arithmetic.h"

namespace flashcore {

/// Where an operand's element lies for an element of the result: no step along an axis it lacks.
struct Walk {
  const double* data;
  std::int64_t outer = 0, inner = 0;

  Walk(const TypedTile& tile, const ir::TileType& result) : data(tile.value->data.data()) {
    const auto& axes = tile.type->axes;
    for (std::size_t i = 0; i < axes.size(); ++i) {
      const std::int64_t step = i == 0 ? tile.value->inner : 1;
      (result.axes[0] == axes[i] ? outer : inner) = step;
    }
  }
  [[nodiscard]] double at(std::int64_t i, std::int64_t j) const {
    return data[i * outer + j * inner];
  }
};

}  // namespace flashcore
