// Time of a short call, robust against a busy machine.
#pragma once

#include <algorithm>
#include <chrono>

namespace flashcore::test {

/// Nanoseconds a call: the best of 20 batches.
template <class Action>
double fastest_nanoseconds(Action action) {
  constexpr int batches = 20;
  constexpr int calls = 2000;
  double best = 1e30;
  for (int batch = 0; batch < batches; ++batch) {
    const auto start = std::chrono::steady_clock::now();
    for (int call = 0; call < calls; ++call) action();
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
    best = std::min(best, time.count() / calls);
  }
  return best;
}

/// A limit for optimised builds; debug builds and sanitisers only have to finish.
constexpr double limit_in_release(double limit) {
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  return limit;
#else
  return limit * 100;
#endif
}

}  // namespace flashcore::test
