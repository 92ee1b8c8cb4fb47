// The length of an axis or of a tensor dimension: a constant, or a name bound at launch.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace flashcore {

/// A constant (`Extent(128)`) is compiled into the kernel. A named extent (`Extent("Sq")`) is a kernel
/// argument read off the shapes of the tensors that carry it, so a new length compiles nothing.
struct Extent {
  std::string name;
  std::int64_t value = -1;

  Extent() = default;
  Extent(std::int64_t value) : value(value) {}  // NOLINT(google-explicit-constructor)
  explicit Extent(std::string name) : name(std::move(name)) {}

  [[nodiscard]] bool is_static() const { return value >= 0; }
  [[nodiscard]] std::string text() const { return is_static() ? std::to_string(value) : name; }
  bool operator==(const Extent&) const = default;
};

}  // namespace flashcore
