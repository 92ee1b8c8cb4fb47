// How a number depends on which tile of an axis a block has.
#pragma once

#include <cstdint>

#include "dsl/ir/function.h"

namespace flashcore {

enum class Trend : std::uint8_t { constant, rising, falling, unknown };

/// Whether an i32 scalar grows, or falls, with the position of the block's tile along a parallel
/// axis; staying the same in between is both.
Trend trend_along(const ir::Function& f, ir::ValueId value, ir::AxisId axis);

}  // namespace flashcore
