#include "codegen/print/names.h"

#include <fmt/format.h>

namespace flashcore {

Names::Names() {
  // What the body uses itself, and the words of C++ that an author might choose.
  for (const char* word :
       {"p",         "shared",   "thread",   "lane",   "warp",   "block",   "fc",
        "row",       "column",   "chunk",    "at",     "a",      "b",       "i",
        "j",         "k",        "e",        "r",      "int",    "float",   "bool",
        "auto",      "new",      "delete",   "this",   "for",    "if",      "else",
        "do",        "while",    "return",   "switch", "case",   "default", "const",
        "constexpr", "true",     "false",    "struct", "class",  "union",   "enum",
        "template",  "typename", "operator", "and",    "or",     "not",     "xor",
        "register",  "signed",   "unsigned", "double", "char",   "short",   "long",
        "void",      "static",   "extern",   "inline", "public", "private", "using",
        "namespace", "sizeof",   "throw",    "try",    "catch",  "goto",    "break",
        "continue",  "asm",      "export"})
    taken_.insert(word);
}

std::string Names::unique(std::string_view wanted) {
  std::string name(wanted.empty() ? "t" : wanted);
  if (!wanted.empty() && taken_.insert(name).second) return name;
  for (int n = wanted.empty() ? 0 : 2;; ++n) {
    std::string numbered = wanted.empty() ? fmt::format("t{}", n) : fmt::format("{}_{}", wanted, n);
    if (taken_.insert(numbered).second) return numbered;
  }
}

}  // namespace flashcore
