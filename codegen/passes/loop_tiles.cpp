#include "codegen/passes/loop_tiles.h"

#include "codegen/passes/rewrite.h"

namespace flashcore {

using namespace ir;

LoopTiles::LoopTiles(Builder& b, const Op& loop)
    : begin(loop.bounds ? loop.operands[0] : b.integer(0)),
      end(loop.bounds ? loop.operands[1] : b.tile_count(loop.axis)),
      scan(loop.buffer),
      descending(loop.descending) {}

ValueId LoopTiles::scanned_behind(Builder& b, ValueId tile) const {
  return b.make({.code = OpCode::next_tile,
                 .operands = {tile, descending ? begin : end},
                 .buffer = scan,
                 .descending = descending},
                {DType::i32, {}});
}

ValueId LoopTiles::behind(Builder& b, ValueId tile, int iterations) const {
  if (!scan)
    return b.elementwise(descending ? OpCode::sub : OpCode::add, {tile, b.integer(iterations)});
  for (int step = 0; step < iterations; ++step)
    tile = named(b.function(), scanned_behind(b, tile), "next_tile");
  return tile;
}

ValueId LoopTiles::in_front(Builder& b) const {
  return descending ? end : b.sub(begin, b.integer(1));
}

ValueId LoopTiles::exists(Builder& b, ValueId tile) const {
  return descending ? b.elementwise(OpCode::ge, {tile, begin})
                    : b.elementwise(OpCode::lt, {tile, end});
}

FirstTile first_tile_of(Builder& b, const Op& loop) {
  const LoopTiles tiles(b, loop);
  ValueId tile = tiles.begin;
  if (tiles.scan)
    tile = tiles.scanned_behind(b, tiles.in_front(b));
  else if (tiles.descending)
    tile = b.sub(tiles.end, b.integer(1));
  return {tile, tiles.exists(b, tile)};
}

void enter_tile(Builder& b, const Op& loop, ValueId tile) {
  b.append({.code = OpCode::enter, .operands = {tile}, .axis = loop.axis});
}

Op loop_behind_first(Builder& b, Op loop, ValueId tile) {
  const LoopTiles tiles(b, loop);
  loop.operands = loop.descending ? std::vector{tiles.begin, tile}
                                  : std::vector{b.add(tile, b.integer(1)), tiles.end};
  loop.bounds = 2;
  return loop;
}

}  // namespace flashcore
