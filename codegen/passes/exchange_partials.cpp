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

class Exchanger {
 public:
  Exchanger(Function& f, const PassContext& context)
      : f_(f), context_(context), schedule_(context.schedule) {}

  void run() {
    rewrite_all_blocks(f_, [&](Builder& b, OpId id) {
      const Op op = f_[id];
      b.go_behind(id);
      if (op.code == OpCode::combine_partials) finish(b, id, op);
      if (kind_of(op.code) == OpKind::reduction && op.scope == ReductionScope::block)
        split(b, id, op);
    });
    if (schedule_.cluster_splits > 1) exchange_in_cluster();
  }

 private:
  [[nodiscard]] AxisLayout layout_along(ValueId value, AxisId axis) const {
    const auto& axes = f_[value].type.axes;
    for (std::size_t k = 0; k < axes.size(); ++k)
      if (axes[k] == axis && k < f_[value].layout.axes.size()) return f_[value].layout.axes[k];
    return {};
  }

  /// The op that made the partials that a value scales and adds up.
  [[nodiscard]] const Op* maker(ValueId value, const Op& combine) const {
    const Op* op = f_.definition(value);
    if (!op) return nullptr;
    const bool same =
        op->code == OpCode::dot || (op->code == combine.reduction && op->axis == combine.axis);
    if (same && op->scope != ReductionScope::block) return op;
    if (op->code == OpCode::loop) return maker(carried_as(f_, value)->next, combine);
    if (kind_of(op->code) != OpKind::elementwise) return nullptr;
    for (ValueId operand : op->operands)
      if (const Op* found = maker(operand, combine)) return found;
    return nullptr;
  }

  void split(Builder& b, OpId id, const Op& reduction) {
    const AxisLayout layout = layout_along(reduction.operands[0], reduction.axis);
    if (layout.warps == 1 || f_[reduction.results[0]].type.is_scalar()) return;
    const ValueId whole = reduction.results[0], partial = replace_result(f_, id, "partial");
    f_[id].scope = ReductionScope::warp;
    meet(b, partial, whole, reduction.axis, reduction.code, holders(layout, false));
  }

  /// Combines the partials of lanes, if they hold any, and then those of warps.
  void finish(Builder& b, OpId id, const Op& combine) {
    const Op* made_by = maker(combine.operands[0], combine);
    if (!made_by) throw InternalError("a combination of partials that no operation made");
    const AxisLayout layout = layout_along(made_by->operands[0], combine.axis);
    const bool in_lanes = made_by->scope == ReductionScope::lane;
    f_[id].partials = holders(layout, in_lanes);
    if (layout.warps == 1) return;
    ValueId partial = combine.operands[0];
    if (in_lanes) {
      partial = replace_result(f_, id, "partial");
      f_[id].partials.warps = f_[id].partials.warp_divisor = 1;
    }
    meet(b, partial, combine.results[0], combine.axis, combine.reduction, holders(layout, false));
    if (!in_lanes) b.remove(id);
  }

  /// Combines the partials of the warps to `whole`.
  void meet(Builder& b, ValueId partial, ValueId whole, AxisId axis, OpCode reduction,
            const AxisLayout& partials) {
    if (reduction == OpCode::reduce_sum && schedule_.warps_n > 1)
      context_.note_numerics(
          fmt::format("the partial sums of {} warps are combined (warps_n)", schedule_.warps_n));
    const TileType type = f_[partial].type;
    const int rows = type.axes.size() == 2 ? f_[type.axes[0]].tile : 1;
    const ValueId slots =
        exchange(b, partial, "partials", rows, f_[type.axes.back()].tile, partials.warps,
                 {.code = OpCode::convert, .axis = axis, .partials = partials});
    const ValueId made = b.combine_partials(slots, axis, reduction);
    f_.definition(made)->partials = partials;
    take_place(f_, whole, made);
  }

  /// Writes a value to its slot, among several, of a buffer of its own.
  ValueId exchange(Builder& b, ValueId value, std::string name, int rows, int columns, int slots,
                   Op convert) {
    const TileType& type = f_[value].type;
    const int pitch = type.axes.size() == 2 ? shared_pitch(columns) : columns;
    const BufferId buffer = f_.add_buffer(
        {unused_buffer_name(f_, "exchange"), type.dtype, rows, columns, slots, pitch});
    return convert_to(b, value, buffer, std::move(name), std::move(convert));
  }

  void exchange_in_cluster() {
    context_.note_numerics(fmt::format(
        "the partial sums of {} blocks are combined (cluster_splits)", schedule_.cluster_splits));
    auto& ops = f_[f_.body].ops;
    const auto first = std::ranges::find_if(ops, has_code(f_, OpCode::cluster_read));
    const std::vector<OpId> combining(first, ops.end());
    ops.erase(first, ops.end());
    Builder b(f_, f_.body);
    std::map<ValueId, ValueId> given;
    for (OpId id : combining) {
      if (f_[id].code != OpCode::cluster_read) continue;
      const ValueId value = f_[id].operands[0];
      if (!given.count(value)) given[value] = give(b, value);
      f_[id].operands[0] = given[value];
    }
    const ValueId mine =
        b.make({.code = OpCode::owns_rows, .blocks = schedule_.cluster_splits}, {DType::i1, {}});
    build_if(b, mine, region_of(combining));
  }

  /// A slot for each block, with the rows of the warps that are combined together.
  ValueId give(Builder& b, ValueId value) {
    const TileType type = f_[value].type;
    const Layout layout = f_[value].layout;
    const int warps = schedule_.consumer_threads() / 32, blocks = schedule_.cluster_splits;
    if (type.is_scalar() || type.dtype != DType::f32 || layout.axes[0].warps != warps)
      throw ScheduleError(
          {fmt::format("cluster_splits = {} for {}", blocks, f_.name),
           "its loop carries a value that is not f32, or of which some warp has no rows of its own",
           "cluster_splits = 1"});
    const int rows = layout.axes[0].length() / warps * ((warps + blocks - 1) / blocks);
    const bool tile = type.axes.size() == 2;
    const std::string& name = f_[value].name;
    return exchange(b, value, name.empty() ? "given" : name + "_given", tile ? rows : 1,
                    tile ? f_[type.axes[1]].tile : rows, blocks,
                    {.code = OpCode::convert, .blocks = blocks});
  }

  Function& f_;
  const PassContext& context_;
  const Schedule& schedule_;
};

}  // namespace

void exchange_partials(Function& f, const PassContext& context) { Exchanger(f, context).run(); }

}  // namespace flashcore
