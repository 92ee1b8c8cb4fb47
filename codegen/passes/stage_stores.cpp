// A warp stores a 16-bit output from registers four bytes a lane. Through shared memory it is
// stored in whole 16-byte chunks, a line a row. The buffer takes no space of its own: it overlaps
// tiles that are dead by then.
//
// The copy engine stores whole tiles while the warps go on. Each warpgroup stores its own rows, and
// the tile overlaps that of a left operand with the same rows, which no other warps read: the load
// of the next such operand waits for the store, because the slot is released behind it.
//
// The engine also adds tiles of sums to f32 outputs, which takes a warp one instruction a tile
// rather than one a pair of elements. Such stores are those of loops, too, so their tile has space
// of its own, with two slots if there is room: an iteration waits for the addition of the iteration
// before the last one:
//
//   %ds = convert %scores in ds           drain_stores pending 1
//   ...                                   %ds = convert %scores in ds
//   store dq[rows, d], %x adding    ->    ...
//                                         %staged = convert %x in dq_tile
//                                         store dq[rows, d], %staged adding
//
// All threads meet behind what they write for products, and so do not have to meet once more between
// the wait and the conversion. A block that adds at its turn passes it on when the engine has added.
#include <algorithm>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "codegen/analysis/ring_barriers.h"
#include "codegen/analysis/shared_use.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

class StoreStaging {
 public:
  StoreStaging(Function& f, const PassContext& context) : f_(f), context_(context) {}

  /// `next_tiles`: the block has other tiles behind what is computed there. In a loop, or a region in
  /// one, it is what is added that is staged.
  void run(BlockId block, bool in_loop = false, bool next_tiles = false) {
    rewrite_ops(f_, block, [&](Builder& b, OpId id) {
      const Op op = f_[id];
      const bool tile_loop = op.code == OpCode::tile_loop;
      if (op.code == OpCode::role || tile_loop)
        run(op.body, in_loop, next_tiles || tile_loop);
      else if (by_engine())
        for (const BlockId region : Regions(op)) run(region, /*in_loop=*/true);
      // Stores of a role may still read shared memory at its end.
      if (op.code == OpCode::role && holds(f_, op.body, OpCode::drain_stores))
        Builder(f_, op.body).append({.code = OpCode::drain_stores});
      if (is_addable(op))
        stage_addition(b, id);
      else if (!in_loop && is_stageable(op))
        stage(b, id, next_tiles);
    });
  }

 private:
  [[nodiscard]] bool by_engine() const { return context_.schedule.copy == CopyInstruction::tma; }

  /// A product's sums, which the engine may add: each warpgroup its rows, or its columns of the
  /// same rows, in whole panels.
  [[nodiscard]] bool is_addable(const Op& store) const {
    if (!by_engine() || store.accumulation == Accumulation::none || !in_lines_of_memory(store))
      return false;
    const Layout& layout = f_[store.operands[0]].layout;
    const AxisLayout &rows = layout.axes[0], &columns = layout.axes[1];
    constexpr int panel = 32;
    return rows.lanes == 8 && rows.slots == 2 && rows.length() == rows.warps * 16 &&
           columns.lanes == 4 && columns.slots == 2 &&
           columns.length() % (columns.warps == 1 ? 8 : columns.warps * panel) == 0;
  }

  /// Whether a tile of registers is stored where chunks of a row lie side by side.
  [[nodiscard]] bool in_lines_of_memory(const Op& op) const {
    if (op.code != OpCode::store) return false;
    const TileType& type = f_[op.operands[0]].type;
    if (type.axes.size() != 2 || f_[op.operands[0]].layout.space != Space::registers) return false;
    // The engine knows where the tensor ends, not where a part of it does; and it stores no box that
    // begins in front of the tensor.
    const auto is_beyond_engine = [&](AxisId axis) {
      return f_[axis].ragged || f_[axis].end_aligned;
    };
    if (by_engine() && std::ranges::any_of(type.axes, is_beyond_engine)) return false;
    return !has_computed_positions(f_, op) && op.coordinates.back().axis == type.axes[1];
  }

  [[nodiscard]] bool is_stageable(const Op& store) const {
    if (!in_lines_of_memory(store)) return false;
    const Value& value = f_[store.operands[0]];
    // A plain layout has neighbours in one lane or in neighbouring lanes already. The others hold
    // eight columns, a chunk, in a few lanes.
    const AxisLayout& columns = value.layout.axes[1];
    return is_half(value.type.dtype) && columns.slots > 1 && columns.fragment_size() == 8;
  }

  void stage(Builder& b, OpId id, bool next_tiles) {
    const Op store = f_[id];
    Buffer buffer = tile_of(store);
    // A block of several tiles loads the operand of the next one as soon as this one's has been
    // read, if the output does not overlap it.
    if (by_engine()) {
      const bool room = has_room(buffer);
      if (!next_tiles || !room)
        buffer.over = dead_operand(b, buffer, f_[store.operands[0]].type.axes[0]);
      if (!buffer.over && !room)
        return refuse(store, buffer);  // its lanes hold chunks of it as well
    }
    const BufferId over = buffer.over;
    if (by_engine()) b.append({.code = OpCode::drain_stores});
    convert_in_front(b, id, f_.add_buffer(std::move(buffer)));
    if (over) release_behind(b.block(), id, over);
  }

  void stage_addition(Builder& b, OpId id) {
    const Op store = f_[id];
    Buffer buffer = tile_of(store);
    const bool at_turn = store.accumulation == Accumulation::in_order;
    // At its turn the block waits for the engine in any case; what late products add was added an iteration ago.
    buffer.stages = at_turn || context_.schedule.late_products ? 1 : 2;
    // Copies of a loop's body have one tile.
    BufferId& tile = addition_tiles_[{store.tensor, buffer.rows, buffer.columns}];
    if (!tile && !has_room(buffer)) buffer.stages = 1;
    if (!tile && !has_room(buffer)) return refuse(store, buffer);
    if (!tile) tile = f_.add_buffer(std::move(buffer));
    if (!at_turn) {
      Builder early(f_, b.block(), written_for_products(b));
      early.append({.code = OpCode::drain_stores, .pending = f_[tile].stages - 1});
    }
    // In front of the wait for the block's turn, if it adds at one.
    const std::size_t at = position_of(f_, b.block(), id);
    const OpId in_front = at > 0 ? f_[b.block()].ops[at - 1] : id;
    Builder front = before(f_, b.block(), f_[in_front].code == OpCode::wait_turn ? in_front : id);
    convert_in_front(front, id, tile);
    b.go_behind(id);
    if (at_turn) b.append({.code = OpCode::complete_stores});
  }

  [[nodiscard]] Buffer tile_of(const Op& store) const {
    const TileType& type = f_[store.operands[0]].type;
    return {unused_buffer_name(f_, f_[store.tensor].name + "_tile"), type.dtype,
            f_[type.axes[0]].tile, f_[type.axes[1]].tile, 1};
  }

  void refuse(const Op& store, const Buffer& buffer) const {
    context_.note_refusal(
        fmt::format("staged_stores = true for {}", f_[store.tensor].name),
        fmt::format("shared memory has no room for {} bytes more", buffer.bytes()));
  }

  /// Moves what a store stores to shared memory, where the builder stands.
  void convert_in_front(Builder& b, OpId id, BufferId staging) {
    const Op store = f_[id];
    f_[id].operands[0] =
        convert_to(b, store.operands[0], staging, f_[store.tensor].name + "_staged");
  }

  /// The last op in front of the builder, and behind a loop, that writes an operand of products;
  /// else where the builder stands.
  [[nodiscard]] std::size_t written_for_products(const Builder& b) const {
    for (std::size_t i = b.position(); i-- > 0;) {
      const Op& op = f_[f_[b.block()].ops[i]];
      if (op.code == OpCode::convert && op.buffer) return i;
      if (op.body) break;
    }
    return b.position();
  }

  [[nodiscard]] bool has_room(const Buffer& wanted) const {
    int bytes = wanted.bytes();
    for (const Buffer& buffer : f_.buffers)
      bytes += buffer.over || buffer.beside || buffer.holds_scalars()
                   ? 0
                   : whole_periods(buffer.bytes());
    return ring_barriers(f_, bytes).end <= context_.target.shared_per_block;
  }

  /// A ring that the block waits for in front of the builder, whose tile has the store's rows and room
  /// for it, warpgroup by warpgroup, and that no other output overlaps.
  [[nodiscard]] BufferId dead_operand(const Builder& b, const Buffer& wanted, AxisId rows) const {
    for (std::size_t i = 0; i < b.position(); ++i) {
      const Op& op = f_[f_[b.block()].ops[i]];
      if (op.code != OpCode::wait || f_[op.buffer].holds_scalars()) continue;
      const Buffer& buffer = f_[op.buffer];
      const bool taken = std::ranges::any_of(
          f_.buffers, [&](const Buffer& other) { return other.over == op.buffer; });
      if (f_[op.results[0]].type.axes[0] == rows && same_panels(buffer, wanted) && !taken &&
          release_of(b.block(), op.buffer) && buffer.slot_bytes() >= wanted.slot_bytes() &&
          is_only_left_operand(f_, op.results[0]))  // each warpgroup reads its own rows
        return op.buffer;
    }
    return {};
  }

  /// The release of a ring in a block. None where that is in a region: then the next tile's operand may
  /// be there before the store.
  [[nodiscard]] OpId release_of(BlockId block, BufferId ring) const {
    for (OpId id : f_[block].ops)
      if (f_[id].code == OpCode::release && f_[id].buffer == ring) return id;
    return {};
  }

  /// Has the ring released behind the store, and behind a wait for what that reads.
  void release_behind(BlockId block, OpId store, BufferId ring) {
    const OpId release = release_of(block, ring);
    const bool earlier = position_of(f_, block, release) < position_of(f_, block, store);
    Builder b = earlier ? behind(f_, block, store) : before(f_, block, release);
    b.append({.code = OpCode::drain_stores});
    if (!earlier) return;
    b.remove(release);
    b.place(release);
  }

  Function& f_;
  const PassContext& context_;
  /// By tensor, rows and columns: what holds the sums that are added.
  std::map<std::tuple<TensorId, int, int>, BufferId> addition_tiles_;
};

}  // namespace

void stage_stores(Function& f, const PassContext& context) {
  if (context.schedule.staged_stores) StoreStaging(f, context).run(f.body);
}

}  // namespace flashcore
