// What every fuzz target says: a reader takes any bytes, and refuses those it cannot use by an
// Error. Anything else that it throws, and whatever the sanitizers find, is a finding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "dsl/error.h"

namespace flashcore::fuzz {

/// Ends the process, as libFuzzer wants it of a finding.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

/// Runs `read`, which may throw an Error with something to read in it.
template <class Read>
void try_to(const Read& read) {
  try {
    read();
  } catch (const Error& error) {
    require(!error.complaint().what.empty(), "an error says what it is about");
    require(!error.complaint().why.empty(), "an error says why");
  }
}

inline std::string_view as_text(const std::uint8_t* bytes, std::size_t size) {
  return {reinterpret_cast<const char*>(bytes), size};
}

}  // namespace flashcore::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size);
