// The length of an axis or of a tensor dimension: a constant, or a name bound at launch, times a
// constant, plus a constant.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace flashcore {

/// A constant (`Extent(128)`) is compiled into the kernel. A named extent (`Extent("Sq")`) is a
/// kernel argument read off the shapes of the tensors that carry it, so a new length compiles
/// nothing. `Extent("B") + 1` is a dimension with one element more: where each of B things begins,
/// and the end. `Extent("Sq") * 4` is an axis over two dimensions, such as the four heads of each of
/// Sq query rows; only axes have such a length.
struct Extent {
  std::string name;
  std::int64_t value = -1;
  int plus = 0;   ///< added to a named extent; not negative
  int times = 1;  ///< a named extent is multiplied by this before; at least 1

  Extent() = default;
  Extent(std::int64_t value) : value(value) {}  // NOLINT(google-explicit-constructor)
  explicit Extent(std::string name) : name(std::move(name)) {}

  [[nodiscard]] bool is_static() const { return value >= 0; }
  [[nodiscard]] std::string text() const {
    if (is_static()) return std::to_string(value);
    std::string text = name;
    if (times != 1) text.append(" * ").append(std::to_string(times));
    if (plus) text.append(" + ").append(std::to_string(plus));
    return text;
  }
  /// The length, of what the name stands for.
  [[nodiscard]] std::int64_t of(std::int64_t named) const {
    return is_static() ? value : named * times + plus;
  }
  bool operator==(const Extent&) const = default;
};

inline Extent operator+(Extent extent, int more) {
  if (extent.is_static())
    extent.value += more;
  else
    extent.plus += more;
  return extent;
}

inline Extent operator*(Extent extent, int factor) {
  if (extent.is_static()) {
    extent.value *= factor;
  } else {
    extent.plus *= factor;
    extent.times *= factor;
  }
  return extent;
}

}  // namespace flashcore
