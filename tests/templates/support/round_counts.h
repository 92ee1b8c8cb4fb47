// A kernel that counts its own iterations: how many tiles of keys a block visits, and on how many
// of them it applies its mask.
#pragma once

#include <ostream>
#include <regex>
#include <string>

#include <gtest/gtest.h>

#include "codegen/kernel_source.h"

namespace flashcore {

struct Counts {
  int visited = 0, masked = 0;
  bool operator==(const Counts&) const = default;

  /// From what a counting kernel writes.
  static Counts read(double rounds) {
    const int visited = static_cast<int>(rounds);
    return {visited, static_cast<int>((rounds - visited) * 1024)};
  }
};

inline std::ostream& operator<<(std::ostream& out, const Counts& counts) {
  return out << counts.visited << " tiles visited, " << counts.masked << " of them masked";
}

inline std::string replaced_text(const std::string& text, const char* pattern, const char* format) {
  std::string changed = std::regex_replace(text, std::regex(pattern), format);
  EXPECT_TRUE(changed != text) << "the kernel has no " << pattern;
  return changed;
}

/// visited + masked / 1024 in place of lse.
inline KernelSource counting(KernelSource source, bool is_masked) {
  std::string& body = source.body;
  body = replaced_text(body, R"(( *const fc::u32 shared = ))", "  float rounds = 0;\n$1");
  body = replaced_text(body, R"((for \(int cols_tile\w* = .*\{))", "$1\n    rounds += 1.f;");
  if (is_masked)
    body = replaced_text(body, R"((const bool (masked\w*) = .*;))",
                         "$1\n      rounds += $2 ? 1.f / 1024 : 0;");
  body = replaced_text(body, R"((fc::store_global<1>\(lse_at .*, )&\w+\[\w\]\[\w\]\);)",
                       "$1&rounds);");
  return source;
}

}  // namespace flashcore
