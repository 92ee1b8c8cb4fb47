// In a block that computes several tiles, the producer comes to the next tile while the consumers
// still read the current query, which has a ring with a single slot. The slots of the keys are free
// before the query's slot is released, so the pass moves the first loads of the keys in front of
// the load of the query:
//
//   load q                       becomes     if any { load k }
//   loop { load k ; load v }                 load q
//                                            if any { load v
//                                              loop over the other tiles { load k ; load v } }
#include <algorithm>
#include <vector>

#include "codegen/passes/copy_ops.h"
#include "codegen/passes/loop_tiles.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

bool fills(const Function& f, OpId id) {
  return f[id].code == OpCode::acquire || f[id].code == OpCode::issue;
}

/// `block` is what a role does for a tile.
void advance_in(Function& f, BlockId block) {
  auto ops = f[block].ops;
  const auto fill = std::ranges::find_if(
      ops, [&](OpId id) { return fills(f, id) && f[f[id].buffer].stages == 1; });
  const auto at = std::find_if(fill, ops.end(), has_code(f, OpCode::loop));
  if (at == ops.end()) return;
  const Op loop = f[*at];
  const std::vector<OpId> fills_of_loop(f[loop.body].ops.begin(), f[loop.body].ops.end() - 1);
  const auto first = std::ranges::find_if(fills_of_loop, has_code(f, OpCode::issue)) + 1;

  // The loop's bounds stand in front of all fills.
  std::stable_partition(fill, at, [&](OpId id) { return !fills(f, id); });
  const auto query = std::find_if(fill, at, [&](OpId id) { return fills(f, id); });
  const std::vector<OpId> fills_in_front(query, at), rest(at + 1, ops.end());
  f[block].ops.assign(ops.begin(), query);
  Builder b(f, block);
  const FirstTile tile = first_tile_of(b, loop);
  OpCopier copier(f);
  copier.rename(f[loop.body].arguments[0], tile.tile);
  const auto build = [&](auto begin, auto end, bool others) {
    build_if(b, tile.exists, [&](Builder& in) -> std::vector<ValueId> {
      enter_tile(in, loop, tile.tile);
      for (auto id = begin; id != end; ++id) copier.copy(in, *id);
      if (others) in.at(loop.where).append(loop_behind_first(in, loop, tile.tile));
      return {};
    });
  };
  build(fills_of_loop.begin(), first, false);
  for (OpId id : fills_in_front) b.place(id);
  build(first, fills_of_loop.end(), true);
  for (OpId id : rest) b.place(id);
}

}  // namespace

void advance_loads(Function& f, const PassContext&) {
  for (OpId role : roles_of(f))
    for (OpId id : std::vector(f[work_of(f, f[role])].ops))
      if (f[id].code == OpCode::tile_loop) advance_in(f, f[id].body);
}

}  // namespace flashcore
