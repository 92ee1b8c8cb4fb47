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
  i32,   ///< indices
  i1,    ///< conditions; never stored
};

/// Bytes of one element in memory. A condition has no memory form and counts 0.
constexpr int size_of(DType type) {
  switch (type) {
    case DType::f16:
    case DType::bf16: return 2;
    case DType::f32:
    case DType::i32: return 4;
    case DType::i1: return 0;
  }
  return 0;
}

constexpr bool is_float(DType type) { return type <= DType::f32; }

/// The 16-bit float types: what a tensor core takes as operands.
constexpr bool is_half(DType type) { return type <= DType::bf16; }

/// "bf16", "f32", ...
std::string_view name_of(DType type);

/// The inverse of name_of; also takes numpy's and torch's spellings ("float16", "bfloat16", "float32").
std::optional<DType> parse_dtype(std::string_view name);

}  // namespace flashcore
