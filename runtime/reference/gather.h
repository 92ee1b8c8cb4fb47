// Elements of a tensor at computed positions.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/reference/arithmetic.h"
#include "runtime/tensor.h"

namespace flashcore {

/// One index tile a dimension, of which those with a bit in `wraps` count from the end where they
/// are negative; `type` is the result's and `result` a tile of its shape. Zero outside the tensor.
void gather(const TensorView& tensor, std::span<const TypedTile> indices, std::uint8_t wraps,
            const ir::TileType& type, Precision precision, TileValue& result);

}  // namespace flashcore
