// Random sizes of problems.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "templates/attention_problem.h"

namespace flashcore {

class DrawLengths {
 public:
  explicit DrawLengths(unsigned seed) : engine_(seed) {}
  std::int64_t number(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(engine_);
  }
  /// As many short ones as long ones.
  std::int64_t length(std::int64_t least, std::int64_t most) {
    const auto bits = [](std::int64_t value) { return std::log2(static_cast<double>(value)); };
    const double drawn =
        std::exp2(std::uniform_real_distribution<double>(bits(least), bits(most))(engine_));
    return std::clamp(static_cast<std::int64_t>(drawn), least, most);
  }
  LengthRange range(std::int64_t most) {
    const std::int64_t a = length(1, most), b = length(1, most);
    return {std::min(a, b), std::max(a, b)};
  }
  template <class T>
  const T& one_of(const std::vector<T>& values) {
    return values[static_cast<std::size_t>(
        number(0, static_cast<std::int64_t>(values.size()) - 1))];
  }

 private:
  std::mt19937 engine_;
};

}  // namespace flashcore
