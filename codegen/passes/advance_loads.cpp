// In a block that computes several tiles, the producer comes to the next tile while the consumers
// still read the current query, which has a ring with a single slot. The slots of the keys are free
// before the query's slot is released, so the pass moves the first loads of the keys in front of
// the load of the query:
//
//   load q                       becomes     if any { load k }
//   loop { load k ; load v }                 load q
//                                            if any { load v
//                                              loop over the other tiles { load k ; load v } }
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

bool loads_only_slot(const Function& f, OpId id) {
  return fills(f, id) && f[f[id].buffer].stages == 1;
}

/// An `if` that a loop has a first tile, and what is done for that.
class FirstIteration {
 public:
  FirstIteration(Function& f, const Op& loop, const FirstTile& tile)
      : f_(f), loop_(loop), tile_(tile), body_(f.add_block()) {
    insert_before(f, body_, 0, loop.where, [&](Builder& b) { enter_tile(b, loop, tile.tile); });
    copier_.rename(f[loop.body].arguments[0], tile.tile);
  }

  /// The loop's fills from the `begin`-th to in front of the `end`-th.
  void take(std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const OpId copied = copier_.copy(f_[loop_.body].ops[i]);
      f_[body_].ops.push_back(copied);
    }
  }
  void take_other_tiles() {
    Op rest = loop_;
    rest.operands = bounds_behind_first(f_, body_, loop_, tile_.tile);
    rest.bounds = 2;
    append_op(f_, body_, std::move(rest));
  }
  OpId finish() {
    append_op(f_, body_, {.code = OpCode::yield});
    return f_.add_op({.code = OpCode::if_, .operands = {tile_.exists}, .body = body_}, {});
  }

 private:
  Function& f_;
  const Op loop_;
  const FirstTile tile_;
  const BlockId body_;
  OpCopier copier_{f_};
};

/// `block` is what a role does for a tile.
void advance_in(Function& f, BlockId block) {
  const std::vector<OpId> ops = f[block].ops;
  std::size_t fill = 0;
  while (fill < ops.size() && !loads_only_slot(f, ops[fill])) ++fill;
  std::size_t at = fill;
  while (at < ops.size() && f[ops[at]].code != OpCode::loop) ++at;
  if (at == ops.size()) return;
  const Op loop = f[ops[at]];
  const std::size_t yield = f[loop.body].ops.size() - 1;

  const BlockId scratch = f.add_block();
  Builder builder(f, scratch);
  const FirstTile tile = first_tile_of(builder, loop);
  FirstIteration front(f, loop, tile), behind(f, loop, tile);
  std::size_t first = 0;  // fill
  while (f[f[loop.body].ops[first]].code != OpCode::issue) ++first;
  front.take(0, first + 1);
  behind.take(first + 1, yield);
  behind.take_other_tiles();
  std::vector<OpId> changed(ops.begin(), ops.begin() + static_cast<std::ptrdiff_t>(fill));
  for (std::size_t i = fill; i < at; ++i)  // the loop's bounds, if they stand behind the fill
    if (!fills(f, ops[i])) changed.push_back(ops[i]);
  changed.insert(changed.end(), f[scratch].ops.begin(), f[scratch].ops.end());
  changed.push_back(front.finish());
  for (std::size_t i = fill; i < at; ++i)
    if (fills(f, ops[i])) changed.push_back(ops[i]);
  changed.push_back(behind.finish());
  changed.insert(changed.end(), ops.begin() + static_cast<std::ptrdiff_t>(at) + 1, ops.end());
  f[block].ops = std::move(changed);
}

}  // namespace

void advance_loads(Function& f, const PassContext&) {
  for (OpId role : roles_of(f))
    for (OpId id : std::vector(f[work_of(f, f[role])].ops))
      if (f[id].code == OpCode::tile_loop) advance_in(f, f[id].body);
}

}  // namespace flashcore
