// Identifiers of the generated kernel: the author's names, made unique.
#pragma once

#include <set>
#include <string>
#include <string_view>

namespace flashcore {

class Names {
 public:
  Names();

  /// `wanted`, or the first of wanted_2, wanted_3, ... that is free. Empty asks for a short name.
  std::string unique(std::string_view wanted);

 private:
  std::set<std::string, std::less<>> taken_;
};

}  // namespace flashcore
