// Between fp32 and the 16-bit types, bit for bit as the GPU converts: to nearest even, overflow to
// infinity, every NaN to 0x7fff.
#pragma once

#include "language.h"
#include "types.cuh"

namespace fc {

FC_DEVICE u32 float_bits(float x) { return __builtin_bit_cast(u32, x); }
FC_DEVICE float bits_float(u32 bits) { return __builtin_bit_cast(float, bits); }

FC_DEVICE float to_float(float x) { return x; }
FC_DEVICE float to_float(bf16 x) { return bits_float(static_cast<u32>(x.bits) << 16); }
FC_DEVICE float to_float(f16 x) {
  const u32 sign = (x.bits & 0x8000u) << 16, rest = x.bits & 0x7fffu;
  // A half's exponent read as a float's is too small by 112. The product is exact for subnormals
  // too.
  const float magnitude = bits_float(rest << 13) * 0x1p112f;
  const u32 bits = rest < 0x7c00u ? float_bits(magnitude) : 0x7f800000u | rest << 13;
  return bits_float(sign | bits);
}

template <class T>
FC_DEVICE T from_float(float x);
template <>
inline float from_float<float>(float x) {
  return x;
}
template <>
inline bf16 from_float<bf16>(float x) {
  const u32 bits = float_bits(x);
  if (x != x) return {0x7fff};
  return {static_cast<u16>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}
template <>
inline f16 from_float<f16>(float x) {
  const u32 sign = float_bits(x) >> 16 & 0x8000u, magnitude = float_bits(x) & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {0x7fff};
  if (magnitude >= 0x477ff000u) return {static_cast<u16>(sign | 0x7c00u)};  // 65520 and above
  if (magnitude < 0x38800000u) {  // below 2^-14: one bit of 0.5f is the smallest subnormal
    const u32 rounded = float_bits(bits_float(magnitude) + 0.5f) - float_bits(0.5f);
    return {static_cast<u16>(sign | rounded)};
  }
  const u32 rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
  return {static_cast<u16>(sign | (rounded - 0x38000000u) >> 13)};
}

template <class T>
FC_DEVICE u32 pack(float low, float high) {
  return from_float<T>(low).bits | static_cast<u32>(from_float<T>(high).bits) << 16;
}

template <class T>
FC_DEVICE float unpack(u32 packed, int which) {
  return to_float(T{static_cast<u16>(which ? packed >> 16 : packed)});
}

template <class T>
FC_DEVICE float round_to(float x) {
  return to_float(from_float<T>(x));
}

}  // namespace fc
