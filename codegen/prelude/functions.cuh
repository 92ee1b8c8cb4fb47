// Functions that only masks and scores of users call.
#pragma once

#include "math.cuh"

namespace fc {

FC_DEVICE float round(float x) { return rintf(x); }
FC_DEVICE float atan(float x) { return atanf(x); }
FC_DEVICE float erf(float x) { return erff(x); }
FC_DEVICE float expm1(float x) { return expm1f(x); }
FC_DEVICE float log1p(float x) { return log1pf(x); }
// Rounded once: what the reduction of large angles is made of.
FC_DEVICE double fma(double a, double b, double c) { return __fma_rn(a, b, c); }

}  // namespace fc
