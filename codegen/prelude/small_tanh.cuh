// The hyperbolic tangent, of small arguments without the special function unit.
#pragma once

#include "math.cuh"

namespace fc {

// x -> tanh(k x) l. For k x from -0.3 to 0.3 within 1.2e-6 of the true value times itself, by the
// odd polynomial of fifth degree with the least error there; for any other by the special function
// unit.
struct small_tanh {
  float square, first, third, fifth;
  float limit;  // of the squares of those that are small
  float exponent, factor;
};
FC_DEVICE small_tanh small_tanh_of(float k, float l = 1.f) {
  const float square = k * k, cube = square * k;
  return {square,
          0.99999887f * k * l,
          -0.33310075f * cube * l,
          0.12634595f * (cube * square) * l,
          0.09f * reciprocal(square),
          2.885390082f * k,
          l};
}
// Of the square of x, or of what is no less.
FC_DEVICE bool is_small(const small_tanh& tanh, float square) { return square <= tanh.limit; }
FC_DEVICE bool is_moderate(const small_tanh& tanh, float square) {
  return square <= tanh.limit * (0.64f / 0.09f);
}
FC_DEVICE float evaluate_add(const small_tanh& tanh, float x, float c) {
  const float square = x * x;
  return fma(x, fma(fma(tanh.fifth, square, tanh.third), square, tanh.first), c);
}
FC_DEVICE float evaluate(const small_tanh& tanh, float x) {
  const float square = x * x;
  return x * fma(fma(tanh.fifth, square, tanh.third), square, tanh.first);
}
// For k x from -0.8 to 0.8 within 1.2e-6, by the polynomial of ninth degree, whose coefficients
// here are in proportion to the first of the other.
FC_DEVICE float evaluate_moderate_add(const small_tanh& tanh, float x, float c) {
  const float square = x * x * tanh.square;
  const float high = fma(fma(0.0121001490f, square, -0.0491801933f), square, 0.132305769f);
  return fma(x * tanh.first, fma(fma(high, square, -0.333254096f), square, 1.00000012f), c);
}
FC_DEVICE float evaluate_moderate(const small_tanh& tanh, float x) {
  return evaluate_moderate_add(tanh, x, 0.f);
}
FC_DEVICE float evaluate_any_add(const small_tanh& tanh, float x, float c) {
  return fma(-2.f * tanh.factor, reciprocal(exp2(x * tanh.exponent) + 1.f), c + tanh.factor);
}
FC_DEVICE float evaluate_any(const small_tanh& tanh, float x) {
  return evaluate_any_add(tanh, x, 0.f);
}
// The same, but minus infinity of minus infinity: the least positive number times any other x is
// too small to show.
FC_DEVICE float evaluate_visible_add(const small_tanh& tanh, float x, float c) {
  const float hides = fma(min(x, 0.f), 1.401298464e-45f, c + tanh.factor);
  return fma(-2.f * tanh.factor, reciprocal(exp2(x * tanh.exponent) + 1.f), hides);
}
FC_DEVICE float evaluate_visible(const small_tanh& tanh, float x) {
  return evaluate_visible_add(tanh, x, 0.f);
}

}  // namespace fc
