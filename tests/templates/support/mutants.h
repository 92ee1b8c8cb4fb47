// Small mistakes in the text of a kernel, the kind that one makes: each gives a mutant.
#pragma once

#include <string>
#include <vector>

namespace flashcore {

struct Mutant {
  std::string body;
  int line = 0;               ///< of the body
  std::string mistake;        ///< "+1", "-1", "dropped", "swapped", "comparison", "unmasked"
  std::string before, after;  ///< the line
};

/// Every mutant of the kernel function, in the order of its lines: an integer one more or one less,
/// a statement left out, the first two arguments of a call swapped, another comparison, the first
/// choice of a condition whatever it says. Not all of them are C++, and not all are wrong.
std::vector<Mutant> mutants_of(const std::string& body);

}  // namespace flashcore
