#include "codegen/print/names.h"

#include <fmt/format.h>

#include "dsl/ir/verify_declarations.h"

namespace flashcore {

Names::Names() {
  // What the body uses itself; the words of C++ are taken besides.
  for (const char* word : {"p", "shared", "thread", "lane", "warp", "block", "row", "column",
                           "chunk", "at", "a", "b", "i", "j", "k", "e", "r"})
    taken_.insert(word);
}

std::string Names::unique(std::string_view wanted) {
  if (!wanted.empty() && !ir::is_reserved_word(wanted) && taken_.emplace(wanted).second)
    return std::string(wanted);
  for (int n = wanted.empty() ? 0 : 2;; ++n) {
    std::string numbered = wanted.empty() ? fmt::format("t{}", n) : fmt::format("{}_{}", wanted, n);
    if (taken_.insert(numbered).second) return numbered;
  }
}

}  // namespace flashcore
