#include "runtime/reference/formats.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace flashcore {
namespace {

struct FloatFormat {
  int significand;  ///< bits, the leading one included
  int lowest;       ///< exponent of the smallest normal number
  int highest;      ///< exponent of the largest number
};
constexpr FloatFormat f16_format{11, -14, 15}, bf16_format{8, -126, 127};

/// One rounding from double, subnormals and overflow included.
double round_float(const FloatFormat& format, double value) {
  constexpr int bias = 1023, fraction = 52;  // of double
  const auto power = [](int exponent) {
    return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + bias) << fraction);
  };
  const double size = std::abs(value), too_large = power(format.highest + 1);
  if (std::isnan(value)) return value;
  if (size >= too_large) return std::copysign(std::numeric_limits<double>::infinity(), value);
  const int exponent = std::max(
      static_cast<int>(std::bit_cast<std::uint64_t>(size) >> fraction) - bias, format.lowest);
  // A sum with this number has the format's last place as its own, and is rounded to it, ties to even.
  const double anchor = power(exponent + fraction + 1 - format.significand);
  const double rounded = (size + anchor) - anchor;
  if (rounded < too_large) return std::copysign(rounded, value);
  return std::copysign(std::numeric_limits<double>::infinity(), value);
}

template <class Integer>
double round_integer(double value) {
  using Limits = std::numeric_limits<Integer>;
  if (std::isnan(value)) return 0;
  return std::clamp(std::trunc(value), static_cast<double>(Limits::min()),
                    static_cast<double>(Limits::max()));
}

double f16_value(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  double value;
  if (exponent == 31)
    value = fraction ? std::numeric_limits<double>::quiet_NaN()
                     : std::numeric_limits<double>::infinity();
  else if (exponent == 0)
    value = std::ldexp(fraction, -24);
  else
    value = std::ldexp(fraction + 1024, exponent - 25);
  return bits & 0x8000 ? -value : value;
}

/// Of a number that f16 has.
std::uint16_t f16_bits(double value) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double size = std::abs(value);
  if (std::isnan(value)) return sign | 0x7e00;
  if (std::isinf(value)) return sign | 0x7c00;
  if (size < std::ldexp(1.0, -14)) return sign | static_cast<std::uint16_t>(std::ldexp(size, 24));
  const int exponent = std::ilogb(size);
  const auto fraction = static_cast<std::uint16_t>(std::ldexp(size, 10 - exponent) - 1024);
  return static_cast<std::uint16_t>(sign | (exponent + 15) << 10 | fraction);
}

}  // namespace

double round_to_tf32(double value) {
  const float single = static_cast<float>(value);
  if (!std::isfinite(single)) return single;
  constexpr std::uint32_t half = 0x1000, below = 0x1fff;
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(single) + half) & ~below);
}

double round_to(DType dtype, double value) {
  switch (dtype) {
    case DType::f16:
      return round_float(f16_format, value);
    case DType::bf16:
      return round_float(bf16_format, value);
    case DType::f32:
      return static_cast<float>(value);
    case DType::f64:
      return value;
    case DType::i32:
      return round_integer<std::int32_t>(value);
    case DType::i64:
      return round_integer<std::int64_t>(value);
    case DType::i16:
      return round_integer<std::int16_t>(value);
    case DType::i8:
      return round_integer<std::int8_t>(value);
    case DType::u8:
      return round_integer<std::uint8_t>(value);
    case DType::i1:
      return value != 0;
  }
  return value;
}

double read_element(DType dtype, const void* data, std::int64_t index) {
  switch (dtype) {
    case DType::f16:
      return f16_value(static_cast<const std::uint16_t*>(data)[index]);
    case DType::bf16: {
      const std::uint32_t bits = static_cast<const std::uint16_t*>(data)[index];
      return std::bit_cast<float>(bits << 16);
    }
    case DType::f32:
      return static_cast<const float*>(data)[index];
    case DType::f64:
      return static_cast<const double*>(data)[index];
    case DType::i32:
      return static_cast<const std::int32_t*>(data)[index];
    case DType::i64:
      return static_cast<double>(static_cast<const std::int64_t*>(data)[index]);
    case DType::i16:
      return static_cast<const std::int16_t*>(data)[index];
    case DType::i8:
      return static_cast<const std::int8_t*>(data)[index];
    case DType::u8:
      return static_cast<const std::uint8_t*>(data)[index];
    case DType::i1:
      return static_cast<const std::uint8_t*>(data)[index] != 0;
  }
  return 0;
}

void write_element(DType dtype, void* data, std::int64_t index, double value) {
  value = round_to(dtype, value);
  switch (dtype) {
    case DType::f16:
      static_cast<std::uint16_t*>(data)[index] = f16_bits(value);
      break;
    case DType::bf16: {
      const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
      static_cast<std::uint16_t*>(data)[index] = static_cast<std::uint16_t>(bits >> 16);
      break;
    }
    case DType::f32:
      static_cast<float*>(data)[index] = static_cast<float>(value);
      break;
    case DType::f64:
      static_cast<double*>(data)[index] = value;
      break;
    case DType::i32:
      static_cast<std::int32_t*>(data)[index] = static_cast<std::int32_t>(value);
      break;
    case DType::i64:
      static_cast<std::int64_t*>(data)[index] = static_cast<std::int64_t>(value);
      break;
    case DType::i16:
      static_cast<std::int16_t*>(data)[index] = static_cast<std::int16_t>(value);
      break;
    case DType::i8:
      static_cast<std::int8_t*>(data)[index] = static_cast<std::int8_t>(value);
      break;
    case DType::u8:
    case DType::i1:
      static_cast<std::uint8_t*>(data)[index] = static_cast<std::uint8_t>(value);
      break;
  }
}

}  // namespace flashcore
