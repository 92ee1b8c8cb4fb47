#include "codegen/passes/first_iteration.h"

#include "codegen/passes/rewrite.h"

namespace flashcore {

using namespace ir;

namespace {

struct Ends {
  ValueId begin, end;
};

Ends ends_of(Builder& b, const Op& loop) {
  if (loop.bounds) return {loop.operands[0], loop.operands[1]};
  return {b.constant(0, DType::i32), b.tile_count(loop.axis)};
}

}  // namespace

FirstTile first_tile_of(Builder& b, const Op& loop) {
  Function& f = b.function();
  const Ends ends = ends_of(b, loop);
  const ValueId one = b.constant(1, DType::i32);
  ValueId tile = loop.descending ? as_uniform(f, b.sub(ends.end, one))
                 : !loop.buffer  ? ends.begin
                                 : as_uniform(f, b.sub(ends.begin, one));
  if (loop.buffer) {
    Op next{
        .code = OpCode::next_tile,
        .operands = {loop.descending ? ends.end : tile, loop.descending ? ends.begin : ends.end}};
    next.buffer = loop.buffer;
    next.descending = loop.descending;
    tile = as_uniform(f, f[b.append(std::move(next), {{DType::i32, {}}})].results[0]);
  }
  const ValueId exists = loop.descending ? b.elementwise(OpCode::ge, {tile, ends.begin})
                                         : b.elementwise(OpCode::lt, {tile, ends.end});
  return {tile, as_uniform(f, exists)};
}

void enter_tile(Builder& b, const Op& loop, ValueId tile) {
  b.append(Op{.code = OpCode::enter, .operands = {tile}, .axis = loop.axis}, {});
}

std::vector<ValueId> bounds_behind_first(Function& f, BlockId block, const Op& loop, ValueId tile) {
  std::vector<ValueId> bounds;
  insert_before(f, block, f[block].ops.size(), loop.where, [&](Builder& b) {
    const Ends ends = ends_of(b, loop);
    if (loop.descending)
      bounds = {ends.begin, tile};
    else
      bounds = {as_uniform(f, b.add(tile, b.constant(1, DType::i32))), ends.end};
  });
  return bounds;
}

}  // namespace flashcore
