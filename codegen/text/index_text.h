// The text of small sums: where a warp's elements begin, and indices of unrolled loops.
#pragma once

#include <string>

#include "dsl/ir/layout.h"

namespace flashcore {

/// The number of a warp along an axis, and where its part of the axis begins.
std::string warp_number(const ir::AxisLayout& layout);
std::string warp_base(const ir::AxisLayout& layout);

// Sums and multiples as a reader would write them: without zeros and ones.
std::string plus(const std::string& a, const std::string& b);
std::string times(const std::string& index, int step);

}  // namespace flashcore
