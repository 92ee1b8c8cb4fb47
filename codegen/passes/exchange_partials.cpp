// A reduction along an axis that is spread over several warps ends with a partial result in each of
// them. Shuffles do not cross warps, so the warps combine their partials through shared memory:
// each warp writes its own partial into a slot, and each reads all slots, in the order of the
// warps, whatever order they arrive in.
//
//   %m = reduce_max %s along cols      becomes
//
//   %partial  = reduce_max %s along cols by warp
//   %partials = convert %partial along cols(2w) in exchange @ shared
//   %m        = combine_partials %partials along cols(2w) of reduce_max
//
// The partials of blocks that split a loop (split_loops) are combined one level up. The rows of
// each warp are assigned to one block of the cluster, one warp after the other. Every block writes
// its partials of these rows into that block's shared memory, and the warps whose rows they are
// read the partials of all blocks (insert_barriers has the blocks meet in between):
//
//   %a = cluster_read %m from 0      becomes      %given = convert %m in exchange among 2 @ shared
//   ...                                           %mine = owns_rows among 2
//   store ...                                     if %mine { %a = cluster_read %given from 0 ; ...
//                                                            store ... }
//
// A combine_partials of an earlier pass (defer_reductions) is treated alike, behind the shuffles
// that combine the partials of a warp's lanes.
#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "codegen/layout/register_layouts.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"
#include "dsl/error.h"

namespace flashcore {
namespace {

using namespace ir;

/// The lanes and warps that hold a partial: those of an axis, without its registers.
AxisLayout holders(const AxisLayout& layout, bool lanes) {
  AxisLayout partials{.warps = layout.warps, .warp_divisor = layout.warp_divisor};
  if (lanes) partials.lanes = layout.lanes, partials.lane_divisor = layout.lane_divisor;
  return partials;
}

/// The op that made the partials that a value scales and adds up.
const Op* maker_of_partials(const Function& f, ValueId value, const Op& combine) {
  const Op* op = f.definition(value);
  if (!op) return nullptr;
  const bool same =
      op->code == OpCode::dot || (op->code == combine.reduction && op->axis == combine.axis);
  if (same && op->scope != ReductionScope::block) return op;
  if (op->code == OpCode::loop) return maker_of_partials(f, carried_as(f, value)->next, combine);
  if (kind_of(op->code) != OpKind::elementwise) return nullptr;
  for (ValueId operand : op->operands)
    if (const Op* found = maker_of_partials(f, operand, combine)) return found;
  return nullptr;
}

/// Writes a value to its slot, among several, of a buffer of its own.
ValueId put_in_slots(Function& f, Builder& b, ValueId value, std::string name, int rows,
                     int columns, int slots, Op convert) {
  const TileType& type = f[value].type;
  const int pitch = type.axes.size() == 2 ? shared_pitch(columns) : columns;
  const BufferId buffer =
      f.add_buffer({unused_buffer_name(f, "exchange"), type.dtype, rows, columns, slots, pitch});
  return convert_to(b, value, buffer, std::move(name), std::move(convert));
}

/// Combines the partials of the warps to `whole`.
void combine_warps(Function& f, const PassContext& context, Builder& b, ValueId partial,
                   ValueId whole, AxisId axis, OpCode reduction, const AxisLayout& layout) {
  const AxisLayout partials = holders(layout, /*lanes=*/false);
  if (reduction == OpCode::reduce_sum && context.schedule.warps_n > 1)
    context.note_numerics(fmt::format("the partial sums of {} warps are combined (warps_n)",
                                      context.schedule.warps_n));
  const TileType type = f[partial].type;
  const int rows = type.axes.size() == 2 ? f[type.axes[0]].tile : 1;
  const ValueId slots =
      put_in_slots(f, b, partial, "partials", rows, f[type.axes.back()].tile, partials.warps,
                   {.code = OpCode::convert, .axis = axis, .partials = partials});
  const ValueId made = b.combine_partials(slots, axis, reduction);
  f.definition(made)->partials = partials;
  take_place(f, whole, made);
}

void split_reduction(Function& f, const PassContext& context, Builder& b, OpId id,
                     const Op& reduction) {
  const AxisLayout layout = layout_along(f, reduction.operands[0], reduction.axis);
  if (layout.warps == 1 || f[reduction.results[0]].type.is_scalar()) return;
  const ValueId whole = reduction.results[0], partial = replace_result(f, id, "partial");
  f[id].scope = ReductionScope::warp;
  combine_warps(f, context, b, partial, whole, reduction.axis, reduction.code, layout);
}

/// Combines the partials of lanes, if they hold any, and then those of warps.
void finish_partials(Function& f, const PassContext& context, Builder& b, OpId id,
                     const Op& combine) {
  const Op* made_by = maker_of_partials(f, combine.operands[0], combine);
  if (!made_by) throw InternalError("a combination of partials that no operation made");
  const AxisLayout layout = layout_along(f, made_by->operands[0], combine.axis);
  const bool in_lanes = made_by->scope == ReductionScope::lane;
  f[id].partials = holders(layout, in_lanes);
  if (layout.warps == 1) return;
  ValueId partial = combine.operands[0];
  if (in_lanes) {
    partial = replace_result(f, id, "partial");
    f[id].partials.warps = f[id].partials.warp_divisor = 1;
  }
  combine_warps(f, context, b, partial, combine.results[0], combine.axis, combine.reduction,
                layout);
  if (!in_lanes) b.remove(id);
}

/// A slot for each block, with the rows of the warps that are combined together.
ValueId give_to_cluster(Function& f, const Schedule& schedule, Builder& b, ValueId value) {
  const TileType type = f[value].type;
  const Layout layout = f[value].layout;
  const int warps = schedule.consumer_threads() / 32, blocks = schedule.cluster_splits;
  if (type.is_scalar() || type.dtype != DType::f32 || layout.axes[0].warps != warps)
    throw ScheduleError(
        {fmt::format("cluster_splits = {} for {}", blocks, f.name),
         "its loop carries a value that is not f32, or of which some warp has no rows of its own",
         "cluster_splits = 1"});
  const int rows = layout.axes[0].length() / warps * ((warps + blocks - 1) / blocks);
  const bool tile = type.axes.size() == 2;
  const std::string& name = f[value].name;
  return put_in_slots(f, b, value, name.empty() ? "given" : name + "_given", tile ? rows : 1,
                      tile ? f[type.axes[1]].tile : rows, blocks,
                      {.code = OpCode::convert, .blocks = blocks});
}

void exchange_in_cluster(Function& f, const PassContext& context) {
  context.note_numerics(fmt::format("the partial sums of {} blocks are combined (cluster_splits)",
                                    context.schedule.cluster_splits));
  auto& ops = f[f.body].ops;
  const auto first = std::ranges::find_if(ops, has_code(f, OpCode::cluster_read));
  const std::vector<OpId> combining(first, ops.end());
  ops.erase(first, ops.end());
  Builder b(f, f.body);
  std::map<ValueId, ValueId> given;
  for (OpId id : combining) {
    if (f[id].code != OpCode::cluster_read) continue;
    const ValueId value = f[id].operands[0];
    f[id].operands[0] =
        remembered(given, value, [&] { return give_to_cluster(f, context.schedule, b, value); });
  }
  const ValueId mine = b.make(
      {.code = OpCode::owns_rows, .blocks = context.schedule.cluster_splits}, {DType::i1, {}});
  build_if(b, mine, region_of(combining));
}

}  // namespace

void exchange_partials(Function& f, const PassContext& context) {
  rewrite_all_blocks(f, [&](Builder& b, OpId id) {
    const Op op = f[id];
    b.go_behind(id);
    if (op.code == OpCode::combine_partials) finish_partials(f, context, b, id, op);
    if (kind_of(op.code) == OpKind::reduction && op.scope == ReductionScope::block)
      split_reduction(f, context, b, id, op);
  });
  if (context.schedule.cluster_splits > 1) exchange_in_cluster(f, context);
}

}  // namespace flashcore
