// Scalar arithmetic that C++ has no operator for. Where the GPU's approximation has a documented
// range (results below 2^-126 flushed to zero, quotients by more than 2^126), the host keeps to it.
#pragma once

#include "convert.h"
#include "types.cuh"
#include "unwritten.h"

namespace fc {

constexpr FC_DEVICE float infinity() { return __builtin_huge_valf(); }
constexpr FC_DEVICE float not_a_number() { return __builtin_nanf(""); }
constexpr FC_DEVICE float lowest() { return -3.402823466e+38f; }

FC_DEVICE float flush_to_zero(float x) {
  const u32 bits = float_bits(x);
  return bits << 1 < 0x01000000u ? bits_float(bits & 0x80000000u) : x;
}

FC_DEVICE float exp2(float x) { return flush_to_zero(__builtin_exp2f(x)); }
FC_DEVICE float log2(float x) { return __builtin_log2f(x); }
FC_DEVICE float sqrt(float x) { return flush_to_zero(__builtin_sqrtf(flush_to_zero(x))); }
FC_DEVICE float magnitude(float x) { return __builtin_fabsf(x); }
FC_DEVICE float floor(float x) { return __builtin_floorf(x); }
FC_DEVICE float reciprocal(float x) { return flush_to_zero(1.f / flush_to_zero(x)); }
FC_DEVICE float divide(float x, float y) {
  const float magnitude = __builtin_fabsf(y);
  if (magnitude > 0x1p126f && magnitude < infinity()) return x * 0.f;
  return x / y;
}
FC_DEVICE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
FC_DEVICE float mul_rn(float a, float b) { return a * b; }
// As the GPU's: not more than 2e-7 of 1 off, which is all of a small argument.
FC_DEVICE float tanh(float x) { return fma(-2.f, reciprocal(exp2(x * 2.885390082f) + 1.f), 1.f); }
FC_DEVICE float max(float a, float b) {
  return is_unwritten(b) ? b : is_unwritten(a) || b != b || a > b ? a : b;
}
FC_DEVICE float min(float a, float b) {
  return is_unwritten(b) ? b : is_unwritten(a) || b != b || a < b ? a : b;
}
FC_DEVICE u32 max(u32 a, u32 b) { return a > b ? a : b; }
FC_DEVICE int max(int a, int b) { return a > b ? a : b; }
FC_DEVICE int min(int a, int b) { return a < b ? a : b; }

FC_DEVICE float limit_scale(float k, float x) {
  const int exponent = static_cast<int>(float_bits(x) >> 23 & 255) - 127;
  return min(k, __builtin_ldexpf(1, 27 - exponent));
}

FC_DEVICE int highest_bit(u32 x) { return 31 - __builtin_clz(x); }
FC_DEVICE int lowest_bit(u32 x) { return __builtin_ctz(x); }

FC_DEVICE int floor_div(int a, int b) {
  if (b == 0) return 0;
  if (b == -1) return static_cast<int>(0u - static_cast<u32>(a));
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}
FC_DEVICE int floor_mod(int a, int b) {
  if (b == 0) return a;
  if (b == -1) return 0;
  const int rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

}  // namespace fc
