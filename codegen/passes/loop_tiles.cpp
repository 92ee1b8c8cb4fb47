#include "codegen/passes/loop_tiles.h"

#include "codegen/passes/rewrite.h"

namespace flashcore {

using namespace ir;

LoopTiles::LoopTiles(Builder& b, const Op& loop)
    : begin(loop.bounds ? loop.operands[0] : b.constant(0, DType::i32)),
      end(loop.bounds ? loop.operands[1] : b.tile_count(loop.axis)),
      scan(loop.buffer),
      descending(loop.descending) {}

ValueId LoopTiles::scanned_behind(Builder& b, ValueId tile) const {
  return make(b,
              {.code = OpCode::next_tile,
               .operands = {tile, descending ? begin : end},
               .buffer = scan,
               .descending = descending},
              {DType::i32, {}});
}

ValueId LoopTiles::exists(Builder& b, ValueId tile) const {
  return descending ? b.elementwise(OpCode::ge, {tile, begin})
                    : b.elementwise(OpCode::lt, {tile, end});
}

FirstTile first_tile_of(Builder& b, const Op& loop) {
  Function& f = b.function();
  const LoopTiles tiles(b, loop);
  const ValueId one = b.constant(1, DType::i32);
  ValueId tile = loop.descending ? as_uniform(f, b.sub(tiles.end, one))
                 : !loop.buffer  ? tiles.begin
                                 : as_uniform(f, b.sub(tiles.begin, one));
  if (loop.buffer)
    tile = as_uniform(f, tiles.scanned_behind(b, loop.descending ? tiles.end : tile));
  return {tile, as_uniform(f, tiles.exists(b, tile))};
}

void enter_tile(Builder& b, const Op& loop, ValueId tile) {
  b.append({.code = OpCode::enter, .operands = {tile}, .axis = loop.axis}, {});
}

std::vector<ValueId> bounds_behind_first(Function& f, BlockId block, const Op& loop, ValueId tile) {
  std::vector<ValueId> bounds;
  insert_before(f, block, f[block].ops.size(), loop.where, [&](Builder& b) {
    const LoopTiles tiles(b, loop);
    if (loop.descending)
      bounds = {tiles.begin, tile};
    else
      bounds = {as_uniform(f, b.add(tile, b.constant(1, DType::i32))), tiles.end};
  });
  return bounds;
}

}  // namespace flashcore
