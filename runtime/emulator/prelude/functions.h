// Functions that only masks and scores of users call.
#pragma once

#include "math.h"

namespace fc {

FC_DEVICE float round(float x) { return __builtin_rintf(x); }
FC_DEVICE float atan(float x) { return __builtin_atanf(x); }
FC_DEVICE float erf(float x) { return __builtin_erff(x); }
FC_DEVICE float expm1(float x) { return __builtin_expm1f(x); }
FC_DEVICE float log1p(float x) { return __builtin_log1pf(x); }
FC_DEVICE double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }

}  // namespace fc
