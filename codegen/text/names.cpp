#include "codegen/text/names.h"

#include <cctype>

#include <fmt/format.h>

namespace flashcore {
namespace {

// Files that hold a kernel are named after it, and their names may have 255 characters.
constexpr std::size_t longest_entry = 128;

std::string identifier(std::string_view wanted) {
  std::string name(wanted);
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  if (!name.empty() && std::isdigit(static_cast<unsigned char>(name[0])) != 0)
    name.insert(0, 1, 't');
  return name;
}

}  // namespace

std::string Names::unique(std::string_view wanted) {
  const std::string name = identifier(wanted);
  if (!name.empty() && !is_reserved(name) && taken_.insert(name).second) return name;
  for (int n = name.empty() ? 0 : 2;; ++n) {
    std::string numbered = name.empty() ? fmt::format("t{}", n) : fmt::format("{}_{}", name, n);
    if (taken_.insert(numbered).second) return numbered;
  }
}

void Names::release(std::string_view name) { taken_.erase(taken_.find(name)); }

Names names_of_body() {
  Names names;
  for (const char* word :
       {"p",    "shared", "thread", "lane",  "warp",  "block",  "row",         "column", "chunk",
        "line", "word",   "panel",  "other", "zeros", "source", "out_pointer", "at",     "a",
        "b",    "c",      "e",      "i",     "j",     "k",      "n",           "r"})
    names.unique(word);
  return names;
}

std::string entry_name(std::string_view program) {
  std::string name = identifier(program.substr(0, longest_entry));
  if (name.empty() || is_reserved(name) || is_declared_outside(name)) name += "_kernel";
  return name;
}

}  // namespace flashcore
