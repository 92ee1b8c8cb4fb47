#include <algorithm>
#include <set>

#include "codegen/analysis/box_positions.h"
#include "codegen/analysis/visit.h"
#include "codegen/instructions/instruction.h"
#include "codegen/layout/register_split.h"
#include "codegen/schedule_rules.h"

namespace flashcore {

using namespace ir;

namespace {

/// Whether a product reads the value, perhaps transposed.
bool feeds_product(const Function& f, ValueId value) {
  return std::ranges::any_of(f.ops, [&](const Op& op) {
    if (op.code == OpCode::transpose && op.operands[0] == value)
      return feeds_product(f, op.results[0]);
    return op.code == OpCode::dot && (op.operands[0] == value || op.operands[1] == value);
  });
}

/// The ops that ask where a block lies along some axes, or read a value that follows from it.
template <class Axes>
class Followers {
 public:
  Followers(const Function& f, const Axes& axes) : f_(f), axes_(axes) {
    for (const Op& op : f.ops)
      if (holds(op)) numbers_.insert(op.results.begin(), op.results.end());
  }

  [[nodiscard]] bool holds(const Op& op) const {
    const bool is_position = op.code == OpCode::index || op.code == OpCode::tile_begin;
    bool follows = is_position && axes_(f_.origin(op.axis));
    for_each_use(op, [&](const ValueId& v) { follows = follows || numbers_.contains(v); });
    return follows;
  }

 private:
  const Function& f_;
  const Axes axes_;
  std::set<ValueId> numbers_;
};

}  // namespace

/// The copy engine brings tiles to warpgroups of their own, which read them there.
void ScheduleCheck::warpgroups() const {
  const TensorInstruction& products = describe(s.instruction);
  const std::string name(name_of(products.name));
  const bool copies = s.copy == CopyInstruction::tma;
  if (copies && !target.tma)
    refuse(fmt::format("copy tma on {}", target.name), "the target does not have it",
           "copy = cp_async, or target sm_90a");
  if (products.by_copy_engine != copies)
    refuse(copies ? "copy tma without instruction = wgmma"
                  : fmt::format("instruction {} without copy = tma", name),
           "wgmma reads tiles from shared memory, where only the copy engine puts them",
           "both or neither", {"instruction = wgmma and copy = tma", [](Schedule& other) {
                                 other.instruction = Instruction::wgmma;
                                 other.copy = CopyInstruction::tma;
                               }});
  if (!products.by_copy_engine) return;
  if (s.softmax == Softmax::shared)
    refuse(fmt::format("instruction {} with softmax = shared", name),
           "its accumulators are in registers with a known layout",
           set("softmax", &Schedule::softmax, Softmax::registers));
  if (s.warps_n < 1 || s.warps_m % products.warps != 0 || s.warps_m < products.warps ||
      s.warps_m * s.warps_n > products.most_warps)
    refuse(fmt::format("instruction {} with {} x {} warps", name, s.warps_m, s.warps_n),
           "one to three warpgroups of four warps divide rows and columns among them",
           {"warps_m = 8 and warps_n = 1", [](Schedule& o) { o.warps_m = 8, o.warps_n = 1; }});
  if (s.warps_n > 1 && s.product_split != ProductSplit::columns)
    refuse(
        fmt::format("instruction {} with warps_n = {} and product_split = terms", name, s.warps_n),
        "a warpgroup adds up all terms of its columns",
        set("product_split", &Schedule::product_split, ProductSplit::columns));
}

/// The copy engine takes boxes of a tensor, one or several for a tile.
void ScheduleCheck::computed_rows() const {
  if (s.copy != CopyInstruction::tma) return;
  for (const Op& op : f.ops) {
    if (op.code != OpCode::load || !has_computed_positions(f, op) ||
        !feeds_product(f, op.results[0]))
      continue;
    const Axis& rows = f[f.origin(f[op.results[0]].type.axes[0])];
    const auto tile = s.tiles.find(rows.name);
    if (tile == s.tiles.end()) continue;
    if (const TileBoxes boxes = boxes_of_tile(f, op, tile->second); !boxes.rows)
      return refuse(
          fmt::format("copy tma of {} at computed positions", f[op.tensor].name), boxes.why_none,
          fmt::format(
              "positions along {} that are divided by a multiple of {}, as in pages of {} rows, or "
              "instruction = mma_m16n8k16 and copy = cp_async, which copies row by row",
              rows.name, box_row_step, 2 * box_row_step));
  }
}

void ScheduleCheck::role_registers() const {
  if (s.copy != CopyInstruction::tma || !s.producer || s.consumer_threads() % 128 != 0) return;
  const RegisterSplit split = register_split(s);
  if (split.producer <= split.consumer) return;
  refuse(
      fmt::format("{} blocks of {} threads a multiprocessor", s.blocks_per_processor, s.threads()),
      fmt::format("each thread begins with {} registers, a thread of the producer takes {}, and "
                  "the {} that are left for a thread of the consumers are fewer",
                  registers_at_start(s.threads(), s.blocks_per_processor), split.producer,
                  split.consumer),
      "fewer blocks_per_processor",
      set("blocks_per_processor", &Schedule::blocks_per_processor, 1));
}

/// Without a producer one warpgroup computes and copies: its own waits say that a slot is free.
void ScheduleCheck::no_producer() const {
  if (s.producer) return;
  const auto refuse = against("producer", &Schedule::producer, true);
  if (s.copy != CopyInstruction::tma)
    return refuse(" without copy = tma", "only with copy = tma does a block have a producer");
  if (s.consumer_threads() != 128)
    refuse(
        s.warps_n == 1 ? fmt::format(" with warps_m = {}", s.warps_m)
                       : fmt::format(" with warps_n = {}", s.warps_n),
        "a warpgroup waits for its own products to have read a slot, and not for those of another",
        "warps_m = 4 and warps_n = 1, or producer = true");
  if (s.persistent)
    refuse(" with persistent = true",
           "the producer is what issues the next tile's loads during a store",
           "persistent = false, or producer = true");
}

void ScheduleCheck::producer_warps() const {
  if (s.producer_warps == 1) return;
  const auto refuse = against("producer_warps", &Schedule::producer_warps, 1);
  if (s.producer_warps != 2)
    return refuse("", "one or two warps of the producer issue loads", "1 or 2");
  if (s.copy != CopyInstruction::tma || !s.producer)
    return refuse(s.copy == CopyInstruction::tma ? " with producer = false" : " without copy = tma",
                  "there is no producer whose warps could issue loads");
  if (s.multicast_blocks > 1)
    refuse(fmt::format(" with multicast_blocks = {}", s.multicast_blocks),
           "each block of the cluster has one warp that loads tiles for both blocks");
}

void ScheduleCheck::ping_pong() const {
  if (!s.ping_pong || !describe(s.instruction).asynchronous) return;
  const auto refuse = against("ping_pong", &Schedule::ping_pong, false);
  if (s.warps_n > 1)
    refuse(fmt::format(" with warps_n = {}", s.warps_n),
           "warpgroups that divide columns meet in every iteration, at the same products");
  if (s.consumer_threads() == 128)
    refuse(" with one warpgroup", "ping-pong needs a second warpgroup");
}

void ScheduleCheck::outer_stages() const {
  if (s.outer_stages == 1 || (s.outer_stages == 2 && s.has_next_tiles())) return;
  against("outer_stages", &Schedule::outer_stages, 1)(
      s.has_next_tiles() ? "" : " without persistent = true",
      "a tile loaded outside loops has one slot, or two in a block that computes several tiles",
      "1");
}

void ScheduleCheck::sums_by_products() const {
  if (s.sums_by_products && describe(s.instruction).column_step > 8)
    against("sums_by_products", &Schedule::sums_by_products, false)(
        " without instruction = wgmma", "its tile of ones is eight columns, as only wgmma takes");
}

void ScheduleCheck::tile_scheduler() const {
  if (s.tile_scheduler == PersistentScheduler::dynamic && !s.persistent)
    against("tile_scheduler", &Schedule::tile_scheduler, PersistentScheduler::serpentine)(
        " without persistent = true", "a block that computes one tile needs no tile scheduler");
}

void ScheduleCheck::persistence() const {
  if (!s.persistent) {
    if (s.grid_order == GridOrder::grouped)
      against("grid_order", &Schedule::grid_order, GridOrder::tiles_first)(
          " without persistent = true", "the hardware orders blocks by their three grid axes only",
          "tiles_first or tiles_last");
    return;
  }
  const auto refuse = against("persistent", &Schedule::persistent, false);
  if (s.copy != CopyInstruction::tma)
    refuse(" without copy = tma",
           "only the copy engine can load the next tile during the epilogue");
  const Followers own(f, [&](AxisId axis) { return f[axis].kind != AxisKind::tiles; });
  for (const Op& op : f.ops)
    if (op.code == OpCode::segment && f[op.axis].kind == AxisKind::parallel && own.holds(op))
      refuse(fmt::format(" with the ragged axis {}", f[op.axis].name),
             "its segment is another one in each block, and tiles are counted in front of them");
  for (std::size_t i = 0; i < f.axes.size(); ++i)
    if (f.axes[i].ragged && !f.axes[i].alias_of && f.axes[i].kind == AxisKind::parallel_tiles)
      tiles_beyond_segments(AxisId(i));
}

/// Persistent blocks compute tiles behind the end of their segment, of which nothing may be stored, and whose
/// positions may lie outside a tensor. What goes element by element along the axis ends with the segment.
void ScheduleCheck::tiles_beyond_segments(AxisId axis) const {
  const auto refuse_access = [&](const char* how, const Op& op) {
    against("persistent", &Schedule::persistent, false)(
        fmt::format(" with the ragged axis {}", f[axis].name),
        fmt::format("a tile behind the end of its segment would {} {}", how, f[op.tensor].name));
  };
  const auto goes_along = [&](const Op& store) {
    const std::vector<AxisId>& axes = f[store.operands[0]].type.axes;
    return std::ranges::any_of(axes, [&](AxisId own) { return f.origin(own) == axis; });
  };
  const Followers of_tile(f, [&](AxisId other) { return other == axis; });
  for (const Op& op : f.ops) {
    const bool in_order = op.accumulation == Accumulation::in_order;
    if (op.code == OpCode::store && (in_order || !goes_along(op)))
      return refuse_access("store to", op);
    if (op.code == OpCode::load && f[op.results[0]].type.is_scalar() && of_tile.holds(op))
      return refuse_access("load from", op);
  }
}

void ScheduleCheck::positions() const {
  if (s.positions_per_block == 1) return;
  const auto refuse = against("positions_per_block", &Schedule::positions_per_block, 1);
  if (s.positions_per_block < 1)
    return refuse("", "a block computes at least one position", "1 or more");
  if (!last_axis_of(f, AxisKind::parallel))
    return refuse("", "the program has no parallel axis of single positions");
  if (s.copy != CopyInstruction::tma || !s.producer)
    refuse(s.copy == CopyInstruction::tma ? " with producer = false" : " without copy = tma",
           "the producer is what issues the next position's loads during a store");
  if (s.persistent)
    refuse(" with persistent = true", "a persistent block computes all positions anyway");
  if (s.cluster_splits > 1)
    refuse(fmt::format(" with cluster_splits = {}", s.cluster_splits),
           "the blocks that split a loop have the same tile of rows, and all run at the same time");
}

void ScheduleCheck::cluster_splits() const {
  const int blocks = s.cluster_splits;
  if (blocks == 1) return;
  const auto refuse = against("cluster_splits", &Schedule::cluster_splits, 1);
  if (blocks != 2 && blocks != 4 && blocks != 8)
    return refuse("", "a loop is split over 2, 4 or 8 blocks of a cluster", "1, 2, 4 or 8");
  if (s.copy != CopyInstruction::tma)
    refuse(" without copy = tma", "only targets with copy = tma have clusters of blocks");
  if (s.persistent)
    refuse(" with persistent = true",
           "the blocks that split a loop have the same tile of rows, and all run at the same time");
  if (std::ranges::any_of(f.tensors,
                          [](const Tensor& tensor) { return tensor.unwritten.has_value(); }))
    refuse(" with probes",
           "no block has a value of the loop before all blocks have combined their partials");
}

void ScheduleCheck::multicast() const {
  if (s.multicast_blocks == 1) return;
  const auto refuse = against("multicast_blocks", &Schedule::multicast_blocks, 1);
  if (s.multicast_blocks != 2)
    return refuse("", "two blocks of a cluster share what they load", "1 or 2");
  if (s.copy != CopyInstruction::tma || !s.producer)
    refuse(s.copy == CopyInstruction::tma ? " with producer = false" : " without copy = tma",
           "the producer of each block loads half of every tile for both blocks");
  if (!s.persistent)
    refuse(" without persistent = true",
           "both blocks of a cluster have to compute neighbouring output tiles at the same time",
           "persistent = true");
  for (const Axis& axis : f.axes)
    if (axis.ragged && axis.kind == AxisKind::parallel_tiles)
      refuse(
          " with a ragged axis",
          fmt::format("neighbouring tiles of {} may lie in segments with other keys", axis.name));
}

/// The copy engine fills rows in front of a tensor with zeros, as it does those behind its end. What else reads
/// a tile, or combines its rows, expects that all from the first one on exist.
void ScheduleCheck::end_aligned_tiles() const {
  if (!s.end_aligned_tiles) return;
  const auto refuse = against("end_aligned_tiles", &Schedule::end_aligned_tiles, false);
  const AxisId rows = first_axis_of(f, AxisKind::parallel_tiles);
  if (!rows) return refuse("", "the program has no axis of parallel_tiles");
  if (s.copy != CopyInstruction::tma)
    return refuse(" without copy = tma", "the copy engine alone loads zeros in front of a tensor");
  if (s.multicast_blocks > 1)
    return refuse(fmt::format(" with multicast_blocks = {}", s.multicast_blocks),
                  "the last block of a cluster may have a tile behind all others");
  if (f[rows].ragged)
    return refuse(" with a ragged axis", "the tiles of a segment are counted from its beginning");
  for (const Op& op : f.ops) {
    if (op.code == OpCode::gather && f[op.results[0]].type.has(rows))
      return refuse(fmt::format(" where {} is read by {}", f[op.tensor].name, f[rows].name),
                    "an index of a row in front of the axis is negative");
    const bool combines = op.code == OpCode::dot
                              ? inner_axis(f, op) == rows
                              : kind_of(op.code) == OpKind::reduction && op.axis == rows;
    if (combines || (op.code == OpCode::store && op.accumulation != Accumulation::none))
      return refuse("", fmt::format("the program adds up what tiles of {} hold", f[rows].name));
    if (op.code == OpCode::load && has_computed_positions(f, op) && f[op.results[0]].type.has(rows))
      return refuse(fmt::format(" where {} is loaded at computed positions", f[op.tensor].name),
                    "they are computed for rows that exist");
  }
}

}  // namespace flashcore
