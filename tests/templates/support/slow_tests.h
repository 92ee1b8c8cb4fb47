// Tests that take minutes run where somebody asks for them.
#pragma once

#include <cstdlib>
#include <string_view>

namespace flashcore {

/// Whether FLASHCORE_SLOW=1 asks for them.
inline bool runs_slow_tests() {
  const char* const asked = std::getenv("FLASHCORE_SLOW");
  return asked != nullptr && std::string_view(asked) == "1";
}

}  // namespace flashcore
