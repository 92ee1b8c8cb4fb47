// How much of what could go on for ever a test does.
#pragma once

#include <cstdlib>

namespace flashcore::test {

/// The first number in `make test`, the second with FLASHCORE_HEAVY set.
inline int light_or_heavy(int light, int heavy) {
  return std::getenv("FLASHCORE_HEAVY") == nullptr ? light : heavy;
}

}  // namespace flashcore::test
