// The copy engine knows where a tensor ends, not where an axis that covers a part of it does. A
// wait that is told the number of its tile is for a tile whose rows beyond the axis have to be
// zeros:
//
//   %k = wait %tile in key     becomes     %k = wait in key
//                                          %left = sub (extent n), %tile * 64
//                                          %beyond = lt %left, 64
//                                          if %beyond { clear_rows %k, %left }
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"
#include "dsl/ir/builder.h"

namespace flashcore {
namespace {

using namespace ir;

std::size_t clear_behind(Function& f, BlockId block, std::size_t position) {
  Op& wait = f[f[block].ops[position]];
  const ValueId number = wait.operands[0], tile = wait.results[0];
  const AxisId rows = f[tile].type.axes[0];
  wait.operands.clear();
  return insert_before(f, block, position + 1, wait.where, [&](Builder& b) {
    const ValueId length = b.constant(f[rows].tile, DType::i32);
    const ValueId left = b.sub(b.extent(rows), b.mul(number, length));
    const ValueId beyond = b.elementwise(OpCode::lt, {left, length});
    f[left].name = f[rows].name + "_left";
    f[left].layout.space = f[beyond].layout.space = Space::uniform;
    Builder inside(f, f.add_block());
    inside.append({.code = OpCode::clear_rows, .operands = {tile, left}}, {});
    inside.append({.code = OpCode::yield}, {});
    b.append({.code = OpCode::if_, .operands = {beyond}, .body = inside.block()}, {});
  });
}

void clear_in(Function& f, BlockId block) {
  for (std::size_t i = 0; i < f[block].ops.size(); ++i) {
    const Op op = f[f[block].ops[i]];
    for (const BlockId region : Regions(op)) clear_in(f, region);
    if (op.code == OpCode::wait && !op.operands.empty()) i += clear_behind(f, block, i);
  }
}

}  // namespace

void clear_rows(Function& f, const PassContext&) { clear_in(f, f.body); }

}  // namespace flashcore
