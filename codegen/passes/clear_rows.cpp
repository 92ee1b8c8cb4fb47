// The copy engine knows where a tensor ends, not where an axis that covers a part of it does. A
// wait that is told the number of its tile is for a tile whose rows beyond the axis have to be
// zeros:
//
//   %k = wait %tile in key     becomes     %k = wait in key
//                                          %left = sub (extent n), %tile * 64
//                                          %beyond = lt %left, 64
//                                          if %beyond { clear_rows %k, %left }
//
// Vectors beside the tile, which lie in its slot, are cleared from the same position on.
#include <vector>

#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

/// The addresses of the vectors beside a tile, from here on.
std::vector<ValueId> place_vectors(Builder& b, ValueId tile) {
  Function& f = b.function();
  std::vector<ValueId> vectors;
  for (const OpId user : std::vector(f[b.block()].ops)) {
    if (f[user].code != OpCode::beside || f[user].operands[0] != tile) continue;
    std::erase(f[b.block()].ops, user);
    b.place(user);
    vectors.push_back(f[user].results[0]);
  }
  return vectors;
}

void clear_behind(Builder& b, OpId id) {
  Function& f = b.function();
  const ValueId number = f[id].operands[0], tile = f[id].results[0];
  const AxisId rows = f[tile].type.axes[0];
  f[id].operands.clear();
  b.go_behind(id);
  const std::vector<ValueId> vectors = place_vectors(b, tile);
  const ValueId length = b.integer(f[rows].tile);
  const ValueId left =
      named(f, b.sub(b.extent(rows), b.mul(number, length)), f[rows].name + "_left");
  const ValueId beyond = b.elementwise(OpCode::lt, {left, length});
  build_if(b, beyond, [&](Builder& in) -> std::vector<ValueId> {
    in.append({.code = OpCode::clear_rows, .operands = {tile, left}});
    for (const ValueId vector : vectors)
      in.append({.code = OpCode::clear_rows, .operands = {vector, left}});
    return {};
  });
}

}  // namespace

void clear_rows(Function& f, const PassContext&) {
  rewrite_inside_out(f, f.body, [&](Builder& b, OpId id) {
    if (f[id].code == OpCode::wait && !f[id].operands.empty()) clear_behind(b, id);
  });
}

}  // namespace flashcore
