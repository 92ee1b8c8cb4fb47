// Arithmetic that is written once for whole numbers of the host and for scalars of a program, which
// compute the same, or become the text of a launch's number.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <type_traits>

#include "dsl/flashcore.h"

namespace flashcore {

template <class Number>
concept WholeNumber = std::same_as<Number, std::int64_t> || std::same_as<Number, Tile>;

/// What a constant of such arithmetic is: an operand of a tile is a double, however whole.
template <WholeNumber Number>
using ConstantFor = std::conditional_t<std::same_as<Number, Tile>, double, std::int64_t>;

inline std::int64_t minimum(std::int64_t a, std::int64_t b) { return std::min(a, b); }
inline std::int64_t maximum(std::int64_t a, std::int64_t b) { return std::max(a, b); }
inline std::int64_t where(bool condition, std::int64_t yes, std::int64_t no) {
  return condition ? yes : no;
}

/// a / b, rounded up.
template <WholeNumber Number, class Divisor>
Number quotient_up(const Number& a, const Divisor& b) {
  return (a + (b - 1)) / b;
}

}  // namespace flashcore
