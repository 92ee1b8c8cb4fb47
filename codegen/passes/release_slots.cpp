// A ring's slot may be filled again once the last product that reads it has completed. A slot that
// an iteration hands to the next one is released there. Slots are released in the order of the
// waits.
#include <algorithm>
#include <optional>
#include <set>

#include "codegen/analysis/shared_use.h"
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
    const auto uses = [&](const Op& op) {
      return any_use(op, [&](ValueId v) { return reads.count(v) > 0; });
    };
    if (!any_op_of(f, user, uses)) continue;
    last = k;
    // A view, a vector in the same slot, or a product in flight, reads on under another name.
    if (user.code == OpCode::transpose || user.code == OpCode::beside || user.issued)
      reads.insert(user.results[0]);
    if (user.code == OpCode::wait_products)
      for (ValueId waited : user.operands) reads.erase(waited);
  }
  return last;
}

void insert_release(Function& f, BlockId block, std::size_t position, BufferId ring) {
  Builder(f, block, position).append({.code = OpCode::release, .buffer = ring});
}

/// Releases the slot of a tile; one that a loop or the next iteration is handed, they release.
void release_slot_of(Function& f, BlockId block, std::size_t first, ValueId tile, BufferId ring,
                     bool has_next_tiles) {
  std::set<ValueId> reads{tile};
  const std::size_t last = last_reader(f, block, first, reads).value_or(first - 1);
  const Op reader = last < f[block].ops.size() ? f[f[block].ops[last]] : Op{};
  if (reader.code == OpCode::yield ||
      (reader.code == OpCode::loop && std::ranges::count(reader.operands, tile)))
    return;
  // The next tile's operand is then loaded during the last product and the epilogue.
  if (has_next_tiles && reader.code == OpCode::if_ && f[ring].stages == 1) {
    for (const BlockId region : Regions(reader)) {
      const auto inside = last_reader(f, region, 0, reads);
      insert_release(f, region, inside ? *inside + 1 : 0, ring);
    }
  } else {
    insert_release(f, block, last + 1, ring);
  }
}

/// The ring in whose slot a tile lies, if it does.
BufferId ring_of(const Function& f, ValueId tile) {
  if (f[tile].layout.space != Space::shared) return {};
  const Op* op = definition_as(f, tile_in_shared(f, tile), OpCode::wait);
  return op ? op->buffer : BufferId{};
}

}  // namespace

void release_slots(Function& f, BlockId block, bool has_next_tiles) {
  for (ValueId argument : std::vector(f[block].arguments))
    if (const BufferId ring = ring_of(f, argument))
      release_slot_of(f, block, 0, argument, ring, has_next_tiles);
  for (std::size_t i = 0; i < f[block].ops.size(); ++i) {
    const Op op = f[f[block].ops[i]];
    for (const BlockId region : Regions(op))
      release_slots(f, region, has_next_tiles || op.code == OpCode::tile_loop);
    if (op.code == OpCode::wait && f[op.results[0]].type.is_scalar()) {
      insert_release(f, block, i + 1, op.buffer);  // every thread has read it then
      continue;
    }
    if (op.code == OpCode::wait || op.code == OpCode::loop)
      for (ValueId result : op.results)
        if (const BufferId ring = ring_of(f, result))
          release_slot_of(f, block, i + 1, result, ring, has_next_tiles);
  }
}

}  // namespace flashcore
