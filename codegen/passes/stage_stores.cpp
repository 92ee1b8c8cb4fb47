// A 16-bit output leaves a warp's registers four bytes a lane. Through shared memory it leaves in whole
// 16-byte chunks, a line a row. The buffer is free: it takes the place of tiles that are dead by then.
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {

using namespace ir;

void stage_stores(Function& f, const PassContext& context) {
  if (!context.schedule.staged_stores) return;
  for (std::size_t i = 0; i < f[f.body].ops.size(); ++i) {
    const OpId id = f[f.body].ops[i];
    const Op store = f[id];
    if (store.code != OpCode::store) continue;
    const Value value = f[store.operands[0]];
    const TileType& type = value.type;
    if (type.axes.size() != 2 || !is_half(type.dtype) || value.home.space != Space::registers)
      continue;
    // A plain layout has neighbours in one lane or in neighbouring lanes already. The others hold eight
    // columns, a chunk, in a few lanes.
    const AxisLayout& columns = value.home.axes[1];
    if (columns.slots == 1 || columns.fragment_size() != 8) continue;
    // Chunks of a row lie side by side in memory only if the tile's columns do.
    if (store.coordinates.back().axis != type.axes[1]) continue;
    const BufferId buffer = f.add_buffer({f[store.tensor].name + "_tile", type.dtype,
                                          f[type.axes[0]].tile, f[type.axes[1]].tile, 1});
    ValueId staged;
    i += insert_before(f, f.body, i, store.where, [&](Builder& b) {
      Op convert{.code = OpCode::convert, .operands = {store.operands[0]}};
      convert.buffer = buffer;
      staged = f[b.append(std::move(convert), {type})].results[0];
    });
    f[staged].home.space = Space::shared;
    f[staged].name = f[store.tensor].name + "_staged";
    f[id].operands[0] = staged;
  }
}

}  // namespace flashcore
