// A tile while a program is evaluated: doubles in the order of its axes, the last one fastest.
#pragma once

#include <cstdint>
#include <vector>

namespace flashcore {

struct TileValue {
  std::int64_t outer = 1, inner = 1;  ///< lengths of the first and the second axis; 1 without one
  std::vector<double> data;

  TileValue() = default;
  TileValue(std::int64_t outer, std::int64_t inner, double fill = 0)
      : outer(outer), inner(inner), data(static_cast<std::size_t>(outer * inner), fill) {}

  [[nodiscard]] double scalar() const { return data[0]; }
};

}  // namespace flashcore
