// Powers of two on the pipes that multiply and add, beside the special function unit, which makes
// one result in the time of eight instructions.
#pragma once

#include "math.cuh"

namespace fc {

// 2^x for one part of x each: the nearest integer goes into the exponent, where adding a number of
// 24 bits has brought it; of the rest, from -1/2 to 1/2, the polynomial of fifth degree with the
// least relative error, 8e-8. With the roundings it is within 2^-22, as exp2 is. 0 below 2^-126.5,
// infinite from 2^127.5 on; a NaN stays one.
FC_DEVICE float polynomial_exp2(float x) {
  const float bounded = min_or_nan(max_or_nan(x, -127.f), 128.f);
  constexpr float to_integer = 12582912.f + 127.f;  // 1.5 * 2^23, and the exponent's bias
  const float shifted = bounded + to_integer;
  const float rest = bounded - (shifted - to_integer);
  float power = fma(0.0013277939f, rest, 0.009675758f);
  power = fma(power, rest, 0.055507097f);
  power = fma(power, rest, 0.24022114f);
  power = fma(power, rest, 0.69314694f);
  power = fma(power, rest, 1.0000001f);
  return power * bits_float(float_bits(shifted) << 23);
}

// exp2 of a thread's n-th element, of every eight of which `share` are the polynomial's.
template <int share>
FC_DEVICE float mixed_exp2(int n, float x) {
  return n * share % 8 < share ? polynomial_exp2(x) : exp2(x);
}

}  // namespace fc
