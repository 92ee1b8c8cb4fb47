// Element types of tensors and tiles.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace flashcore {

enum class DType : std::uint8_t {
  f16,   ///< IEEE half
  bf16,  ///< bfloat16
  f32,   ///< IEEE single; what every product and reduction accumulates in
  f64,   ///< in memory only; read as f32
  i32,   ///< indices
  i64,   ///< in memory only, as are the next three; read as i32, what does not fit at its limits
  i16,
  i8,
  u8,
  i1,  ///< conditions; one byte in memory
};

/// Bytes of one element in memory.
constexpr int size_of(DType type) {
  switch (type) {
    case DType::f16:
    case DType::bf16:
    case DType::i16:
      return 2;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::i8:
    case DType::u8:
    case DType::i1:
      return 1;
  }
  return 0;
}

constexpr bool is_float(DType type) { return type <= DType::f64; }

/// What an element of a tensor is once it is in a tile that expressions compute with: f32, i32 or
/// i1.
constexpr DType value_type(DType stored) {
  if (stored == DType::i1) return DType::i1;
  return is_float(stored) ? DType::f32 : DType::i32;
}

/// Whether a tile can have it, rather than only a tensor that is read by `gather`.
constexpr bool is_tile_type(DType type) {
  return type <= DType::f32 || type == DType::i32 || type == DType::i1;
}

/// The 16-bit float types: what a tensor core takes as operands.
constexpr bool is_half(DType type) { return type <= DType::bf16; }

/// "bf16", "f32", ...
std::string_view name_of(DType type);

/// The inverse of name_of; also takes numpy's and torch's spellings ("float16", "bfloat16",
/// "float32").
std::optional<DType> parse_dtype(std::string_view name);

}  // namespace flashcore
