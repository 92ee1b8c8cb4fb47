#include <fmt/format.h>

#include "codegen/passes/passes.h"
#include "dsl/error.h"

namespace flashcore {
namespace {

// Tensor cores take their inner dimension in steps of 16.
int pad_whole(std::int64_t extent) { return static_cast<int>((extent + 15) / 16 * 16); }

bool is_tiled(const ir::Axis& axis) {
  return axis.kind == ir::AxisKind::tiles || axis.kind == ir::AxisKind::parallel_tiles;
}

std::string tiled_axes(const ir::Function& f) {
  std::string list;
  for (const ir::Axis& axis : f.axes)
    if (is_tiled(axis)) list += (list.empty() ? "" : ", ") + axis.name;
  return list;
}

}  // namespace

void apply_schedule(ir::Function& f, const PassContext& context) {
  const Schedule& schedule = context.schedule;
  for (const auto& [name, size] : schedule.tiles) {
    const ir::AxisId axis = f.find_axis(name);
    if (!axis || !is_tiled(f[axis]))
      throw ScheduleError({fmt::format("a tile size for \"{}\"", name),
                           fmt::format("program {} has no tiled axis of that name", f.name),
                           fmt::format("its tiled axes are {}", tiled_axes(f)), {}});
    if (size < 16 || size % 16 != 0 || size > 1024)
      throw ScheduleError({fmt::format("tile of {} along {}", size, name),
                           "tensor cores and swizzled shared memory work in steps of 16",
                           "a multiple of 16 up to 1024", {}});
  }
  const int threads = schedule.threads();
  if (schedule.warps_m < 1 || schedule.warps_n < 1 || threads > context.target.threads_per_block)
    throw ScheduleError(
        {fmt::format("{} x {} warps", schedule.warps_m, schedule.warps_n),
         fmt::format("that is {} threads; a block of {} has 32 to {}", threads,
                     context.target.name, context.target.threads_per_block),
         "warps_m = 4 and warps_n = 1 fit everywhere", {}});
  if (schedule.stages < 1 || schedule.stages > 8)
    throw ScheduleError({fmt::format("{} stages", schedule.stages),
                         "a pipeline has 1 to 8 tiles in flight or in use", "2 or 3", {}});

  bool first_tiles = true;
  for (ir::Axis& axis : f.axes) {
    switch (axis.kind) {
      case ir::AxisKind::parallel: axis.tile = 1; break;
      case ir::AxisKind::whole: axis.tile = pad_whole(axis.extent.value); break;
      case ir::AxisKind::tiles:
      case ir::AxisKind::parallel_tiles: {
        const auto found = schedule.tiles.find(axis.name);
        if (found == schedule.tiles.end())
          throw ScheduleError({fmt::format("no tile size for axis {}", axis.name),
                               fmt::format("program {} cuts it into tiles", f.name),
                               fmt::format("schedule.tiles[\"{}\"] = 64", axis.name), {}});
        axis.tile = found->second;
        break;
      }
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
