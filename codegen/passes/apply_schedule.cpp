#include "codegen/passes/passes.h"
#include "codegen/schedule_checks.h"
#include "dsl/error.h"

namespace flashcore {
namespace {

// Tensor cores take their inner dimension in steps of 16.
int pad_whole(std::int64_t extent) { return static_cast<int>((extent + 15) / 16 * 16); }

}  // namespace

void apply_schedule(ir::Function& f, const PassContext& context) {
  const Schedule& schedule = context.schedule;
  const std::vector<Reason> reasons = check_schedule(f, context);
  if (!reasons.empty()) throw ScheduleError(reasons.front().complaint);

  bool first_tiles = true;
  for (ir::Axis& axis : f.axes) {
    switch (axis.kind) {
      case ir::AxisKind::parallel: axis.tile = 1; break;
      case ir::AxisKind::whole: axis.tile = pad_whole(axis.extent.value); break;
      case ir::AxisKind::tiles:
      case ir::AxisKind::parallel_tiles: axis.tile = schedule.tiles.at(axis.name); break;
    }
    if (axis.kind == ir::AxisKind::parallel_tiles && first_tiles) {
      axis.descending = schedule.last_tiles_first;
      first_tiles = false;
    }
  }
  for (ir::Op& op : f.ops)
    if (op.code == ir::OpCode::loop) op.descending = schedule.descending;
}

}  // namespace flashcore
