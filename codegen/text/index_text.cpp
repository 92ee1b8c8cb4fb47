#include "codegen/text/index_text.h"

#include <fmt/format.h>

namespace flashcore {

std::string warp_number(const ir::AxisLayout& layout) {
  std::string warp = "warp";
  if (layout.warp_divisor > 1) warp += fmt::format(" / {}", layout.warp_divisor);
  return warp + fmt::format(" % {}", layout.warps);
}

std::string warp_base(const ir::AxisLayout& layout) {
  if (layout.warps == 1) return "0";
  return fmt::format("{} * {}", warp_number(layout), layout.fragments * layout.fragment_size());
}

std::string plus(const std::string& a, const std::string& b) {
  return a == "0" ? b : a + " + " + b;
}

std::string times(const std::string& index, int step) {
  return index == "0" ? "0" : step == 1 ? index : fmt::format("{} * {}", index, step);
}

}  // namespace flashcore
