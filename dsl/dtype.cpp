#include "dsl/dtype.h"

#include <array>
#include <utility>

namespace flashcore {

std::string_view name_of(DType type) {
  switch (type) {
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
    case DType::f32:
      return "f32";
    case DType::f64:
      return "f64";
    case DType::i32:
      return "i32";
    case DType::i64:
      return "i64";
    case DType::i16:
      return "i16";
    case DType::i8:
      return "i8";
    case DType::u8:
      return "u8";
    case DType::i1:
      return "i1";
  }
  return "?";
}

std::optional<DType> parse_dtype(std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, DType>, 25> names{{
      {"f16", DType::f16},     {"fp16", DType::f16},  {"half", DType::f16},
      {"float16", DType::f16}, {"bf16", DType::bf16}, {"bfloat16", DType::bf16},
      {"f32", DType::f32},     {"fp32", DType::f32},  {"float", DType::f32},
      {"float32", DType::f32}, {"f64", DType::f64},   {"double", DType::f64},
      {"float64", DType::f64}, {"i32", DType::i32},   {"int32", DType::i32},
      {"i64", DType::i64},     {"int64", DType::i64}, {"i16", DType::i16},
      {"int16", DType::i16},   {"i8", DType::i8},     {"int8", DType::i8},
      {"u8", DType::u8},       {"uint8", DType::u8},  {"i1", DType::i1},
      {"bool", DType::i1},
  }};
  for (const auto& [text, type] : names)
    if (text == name) return type;
  return std::nullopt;
}

}  // namespace flashcore
