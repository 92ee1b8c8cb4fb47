// Gives every axis its tile size and every loop its direction, as the schedule says. After it,
// Axis::tile is set.
#include "codegen/analysis/rescaled_sums.h"
#include "codegen/analysis/visit.h"
#include "codegen/analysis/warp_partition.h"
#include "codegen/instructions/instruction.h"
#include "codegen/passes/passes.h"
#include "codegen/schedule_checks.h"
#include "dsl/error.h"

namespace flashcore {
namespace {

/// What a whole axis is padded to a multiple of: tensor cores take their inner dimension in steps
/// of 16, and so does each of the warps that divide the columns of a product. Warpgroups divide them
/// by the panels of 64 that the right operand lies in.
int step_of(const ir::Function& f, const Schedule& schedule, ir::AxisId axis) {
  int step = 16;
  for_each_op(f, f.body, [&](const ir::Op& op, ir::BlockId) {
    if (op.code == ir::OpCode::dot && f[op.results[0]].type.axes[1] == axis &&
        !cuts_sum(f, op, schedule))
      step = (schedule.warps_n > 1 && describe(schedule.instruction).warps > 1 ? 64 : 16) *
             schedule.warps_n;
  });
  return step;
}

}  // namespace

void apply_schedule(ir::Function& f, const PassContext& context) {
  const Schedule& schedule = context.schedule;
  const std::vector<Reason> reasons = check_schedule(f, context);
  if (!reasons.empty()) throw ScheduleError(reasons.front().complaint);

  for (std::size_t i = 0; i < f.axes.size(); ++i) {
    ir::Axis& axis = f.axes[i];
    switch (axis.kind) {
      case ir::AxisKind::parallel:
        axis.tile = 1;
        break;
      case ir::AxisKind::whole: {
        const int step = step_of(f, schedule, ir::AxisId(i));
        axis.tile = static_cast<int>((axis.extent.value + step - 1) / step * step);
        break;
      }
      case ir::AxisKind::tiles:
      case ir::AxisKind::parallel_tiles:
        axis.tile = schedule.tiles.at(f[f.origin(ir::AxisId(i))].name);
        break;
    }
  }
  if (const ir::AxisId rows = first_axis_of(f, ir::AxisKind::parallel_tiles)) {
    f[rows].descending = schedule.last_tiles_first;
    f[rows].end_aligned = schedule.end_aligned_tiles;
  }
  for (ir::Op& op : f.ops)
    if (op.code == ir::OpCode::loop) op.descending = schedule.descending && !order_matters(f, op);
}

}  // namespace flashcore
