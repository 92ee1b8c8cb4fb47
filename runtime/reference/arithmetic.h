// Operations on whole tiles. Each takes its operands with their types, since tiles broadcast by
// axis.
#pragma once

#include <span>

#include "dsl/ir/function.h"
#include "runtime/reference/reference.h"
#include "runtime/reference/tile_value.h"

namespace flashcore {

struct TypedTile {
  const TileValue* value;
  const ir::TileType* type;
};

/// Any elementwise op; `type` is the result's and `result` a tile of its shape. A result in f32 is
/// rounded to it if the precision asks for it.
void elementwise(ir::OpCode code, std::span<const TypedTile> operands, const ir::TileType& type,
                 Precision precision, TileValue& result);

/// `along`: 0 reduces the first axis, 1 the second. Of nothing the sum is 0, the largest -inf.
TileValue reduce(ir::OpCode code, const TileValue& tile, int along, Precision precision);

TileValue transpose(const TileValue& tile);

/// a times b plus the accumulator, if there is one. Sums are taken in double or, for
/// Precision::storage, in f32 one product after the other.
TileValue dot(const TileValue& a, const TileValue& b, const TileValue* accumulator,
              Precision precision);

}  // namespace flashcore
