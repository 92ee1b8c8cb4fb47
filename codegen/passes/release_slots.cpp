// The consumers release a slot of a ring behind the wait for the last product that reads it.
#include <optional>
#include <set>

#include "codegen/passes/products_in_flight.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

/// The position of the last op, from `first` on, that reads one of the values, or waits for a
/// product that does. Views of them join `reads`.
std::optional<std::size_t> last_reader(const Function& f, BlockId block, std::size_t first,
                                       std::set<ValueId>& reads) {
  std::optional<std::size_t> last;
  for (std::size_t k = first; k < f[block].ops.size(); ++k) {
    const Op& user = f[f[block].ops[k]];
    bool uses = false;
    const auto look = [&](const Op& at, BlockId = {}) {
      for_each_use(at, [&](const ValueId& v) { uses = uses || reads.count(v) > 0; });
    };
    look(user);
    for (const BlockId region : {user.body, user.otherwise})
      if (region) for_each_op(f, region, look);
    if (!uses) continue;
    last = k;
    // A view, or a product in flight, reads on under another name.
    if (user.code == OpCode::transpose || user.issued) reads.insert(user.results[0]);
    if (user.code == OpCode::wait_products)
      for (ValueId waited : user.operands) reads.erase(waited);
  }
  return last;
}

void insert_release(Function& f, BlockId block, std::size_t position, BufferId ring) {
  Op release{.code = OpCode::release};
  release.buffer = ring;
  const OpId id = f.add_op(std::move(release), {});
  auto& ops = f[block].ops;
  ops.insert(ops.begin() + static_cast<std::ptrdiff_t>(position), id);
}

}  // namespace

void release_slots(Function& f, BlockId block, bool has_next_tiles) {
  for (std::size_t i = 0; i < f[block].ops.size(); ++i) {
    const Op op = f[f[block].ops[i]];
    for (const BlockId region : {op.body, op.otherwise})
      if (region) release_slots(f, region, has_next_tiles || op.code == OpCode::tile_loop);
    if (op.code != OpCode::wait) continue;
    if (f[op.results[0]].type.is_scalar()) {  // every thread has read it then
      insert_release(f, block, i + 1, op.buffer);
      continue;
    }
    std::set<ValueId> reads{op.results[0]};
    const std::size_t last = last_reader(f, block, i + 1, reads).value_or(i);
    // The next tile's operand is then loaded during the last product and the epilogue.
    const Op reader = f[f[block].ops[last]];
    if (has_next_tiles && reader.code == OpCode::if_ && f[op.buffer].stages == 1) {
      for (const BlockId region : {reader.body, reader.otherwise}) {
        const auto inside = last_reader(f, region, 0, reads);
        insert_release(f, region, inside ? *inside + 1 : 0, op.buffer);
      }
    } else {
      insert_release(f, block, last + 1, op.buffer);
    }
  }
}

}  // namespace flashcore
