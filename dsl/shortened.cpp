#include "dsl/shortened.h"

#include <algorithm>

namespace flashcore {

std::string shortened(std::string_view text, std::size_t most) {
  std::string shown(text.substr(0, most));
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return (c < ' ' && c != '\n') || c > '~'; }, '?');
  return text.size() > most ? shown + "..." : shown;
}

}  // namespace flashcore
