// Sine, cosine and tangent of radians. CUDA's own reduce large angles by a loop over the digits of
// 2 / pi, at every element of an unrolled tile: kernels of 5 s of compile time with a stack.
#pragma once

#include "functions.cuh"
#include "math.cuh"

namespace fc {

// x is quarter * pi / 2 + rest, and rest lies between -pi / 4 and pi / 4.
struct angle {
  float rest;
  int quarter;
};
FC_DEVICE angle reduce_angle(float x) {
  if (magnitude(x) < 32768.f) {
    const float quarters = round(x * 0.636619772f);
    // pi / 2 in three parts
    const float near = fma(quarters, -3.13916473e-7f, fma(quarters, -1.57079601f, x));
    return {fma(quarters, -5.39030253e-15f, near), static_cast<int>(quarters)};
  }
  // Exact enough up to 4e15, where neighbouring floats are 2^29 apart; beyond, any value between -1
  // and 1 is as good as another. An infinity becomes NaN.
  if (!(magnitude(x) < 4e15f)) return {x * 0.f, 0};
  const double quarters =
      static_cast<double>(static_cast<long long>(x * 0.6366197723675814 + (x < 0.f ? -0.5 : 0.5)));
  const double near = fma(quarters, -1.5707963267948966, static_cast<double>(x));
  return {static_cast<float>(fma(quarters, -6.123233995736766e-17, near)),
          static_cast<int>(static_cast<long long>(quarters) & 3)};
}

// Within 7e-8, for angles up to pi / 4 to either side.
FC_DEVICE float sin_of_small(float x) {
  const float s = x * x;
  const float tail =
      fma(fma(fma(2.72499647e-6f, s, -1.98400871e-4f), s, 8.33333188e-3f), s, -0.166666667f);
  return fma(x * s, tail, x);
}
FC_DEVICE float cos_of_small(float x) {
  const float s = x * x;
  const float tail = fma(fma(2.45382165e-5f, s, -1.38882275e-3f), s, 4.16666635e-2f);
  return fma(s, fma(s, tail, -0.5f), 1.f);
}

// The sine a quarter of a turn, or several, further on.
FC_DEVICE float sin_of(const angle& a, int quarters) {
  const int turn = a.quarter + quarters;
  const float y = turn & 1 ? cos_of_small(a.rest) : sin_of_small(a.rest);
  return turn & 2 ? -y : y;
}
FC_DEVICE float sin(float x) { return sin_of(reduce_angle(x), 0); }
FC_DEVICE float cos(float x) { return sin_of(reduce_angle(x), 1); }
FC_DEVICE float tan(float x) {
  const angle a = reduce_angle(x);
  return divide(sin_of(a, 0), sin_of(a, 1));
}

}  // namespace fc
