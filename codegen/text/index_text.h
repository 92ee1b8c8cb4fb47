// The text of small sums and lists: where a warp's elements and a buffer's slots begin, and indices
// of unrolled loops.
#pragma once

#include <string>
#include <string_view>

#include <fmt/format.h>

#include "dsl/ir/function.h"

namespace flashcore {

/// The number of a warp along an axis.
inline std::string warp_number(const ir::AxisLayout& layout) {
  std::string warp = "warp";
  if (layout.warp_divisor > 1) warp += fmt::format(" / {}", layout.warp_divisor);
  return warp + fmt::format(" % {}", layout.warps);
}

/// Where a warp's part of an axis begins.
inline std::string warp_base(const ir::AxisLayout& layout) {
  if (layout.warps == 1) return "0";
  return fmt::format("{} * {}", warp_number(layout), layout.fragments * layout.fragment_size());
}

/// The address of a slot of a buffer.
inline std::string chunk_base(const ir::Buffer& buffer, const std::string& slot) {
  std::string text = "shared";
  if (buffer.offset) text += fmt::format(" + {}", buffer.offset);
  if (buffer.stages > 1) text += fmt::format(" + {} * {}", slot, buffer.slot_stride());
  return text;
}

// Sums and multiples as a reader would write them: without zeros and ones.
inline std::string plus(const std::string& a, const std::string& b) {
  if (b.empty() || b == "0") return a;
  return a == "0" ? b : a + " + " + b;
}
inline std::string plus(int offset) { return offset ? fmt::format(" + {}", offset) : ""; }
inline std::string times(const std::string& index, int step) {
  return index == "0" ? "0" : step == 1 ? index : fmt::format("{} * {}", index, step);
}
inline std::string times(const std::string& index, const std::string& step) {
  return step == "1" ? index : fmt::format("{} * {}", index, step);
}

/// Adds one more to a list of terms, conditions or names.
inline void append(std::string& list, std::string_view separator, std::string_view one) {
  if (!list.empty()) list += separator;
  list += one;
}

/// An expression that nothing stands beside.
inline std::string without_parentheses(const std::string& text) {
  return text.starts_with("(") ? text.substr(1, text.size() - 2) : text;
}

}  // namespace flashcore
