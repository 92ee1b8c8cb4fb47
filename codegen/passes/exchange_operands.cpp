// An operand that all warpgroups compute, each some rows of it, for products of all: with late products they
// hand it on through a channel of two slots, so that none waits for the others where it writes its part, and
// the product that reads it may run beside the next iteration:
//
//   %shared = convert %x in x_tile          acquire in x_tile
//   %y = dot %shared, %key             ->   issue %x in x_tile
//                                           commit in x_tile
//                                           %shared = wait in x_tile
//                                           %y = dot %shared, %key
//
// A warp that has written its part says so; a warpgroup whose product has read all of it gives the slot back.
#include "codegen/analysis/product_stages.h"
#include "codegen/analysis/shared_use.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

/// Whether products in flight of this block, and they alone, read what a conversion writes.
bool is_for_products(const Function& f, BlockId block, const Op& convert) {
  bool read = false;
  const bool others = any_op(f, f.body, [&](const Op& op) {
    if (op.code == OpCode::transpose) return false;
    const auto uses = [&](ValueId v) { return tile_in_shared(f, v) == convert.results[0]; };
    if (!any_use(op, uses)) return false;
    const auto& ops = f[block].ops;
    const bool product =
        is_asynchronous_product(op) && std::ranges::count(ops, f[op.results[0]].definition) > 0;
    read = read || product;
    return !product;
  });
  return read && !others;
}

void exchange(Function& f, BlockId block) {
  rewrite_ops(f, block, [&](Builder& b, OpId id) {
    const Op op = f[id];
    for (const BlockId region : Regions(op))
      if (op.code == OpCode::tile_loop || op.code == OpCode::loop) exchange(f, region);
    if (op.code != OpCode::convert || !op.buffer || op.blocks > 0 || op.partials.warps > 1 ||
        !is_for_products(f, block, op))
      return;
    f[op.buffer].transport = Transport::warps;
    f[op.buffer].stages = 2;
    b.append({.code = OpCode::acquire, .buffer = op.buffer});
    b.append({.code = OpCode::issue, .operands = op.operands, .buffer = op.buffer});
    b.append({.code = OpCode::commit, .buffer = op.buffer});
    f[id].code = OpCode::wait;
    f[id].operands.clear();
  });
}

}  // namespace

void exchange_operands(Function& f, const PassContext& context) {
  if (!context.schedule.late_products || !context.schedule.overlap_products) return;
  for (OpId role : roles_of(f))
    for (OpId id : std::vector(f[f[role].body].ops))
      if (f[id].code == OpCode::loop || f[id].code == OpCode::tile_loop) exchange(f, f[id].body);
}

}  // namespace flashcore
