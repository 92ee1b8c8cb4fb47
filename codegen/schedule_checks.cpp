#include "codegen/schedule_checks.h"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

#include "codegen/instructions/instruction.h"
#include "codegen/schedule_rules.h"

namespace flashcore {

using namespace ir;

namespace {

bool is_tiled(const Axis& axis) {
  if (axis.alias_of) return false;  // it has the tiles of another
  return axis.kind == AxisKind::tiles || axis.kind == AxisKind::parallel_tiles;
}

std::string tiled_axes(const Function& f) {
  std::string list;
  for (const Axis& axis : f.axes)
    if (is_tiled(axis)) list += (list.empty() ? "" : ", ") + axis.name;
  return list;
}

Mending without_tile(const std::string& axis) {
  return {"", [=](Schedule& s) { s.tiles.erase(axis); }};
}

}  // namespace

/// What the schedule's instruction needs of the target and of the rest of the schedule.
void ScheduleCheck::instruction() const {
  const TensorInstruction& described_one = describe(s.instruction);
  const std::string name(name_of(described_one.name));
  if (described_one.available && !(target.*described_one.available))
    refuse(fmt::format("instruction {} on {}", name, target.name), "the target does not have it",
           std::string(described_one.instead));
  if (described_one.opaque && s.softmax == Softmax::registers)
    refuse(fmt::format("instruction {} with softmax = registers", name),
           "which lane holds which element of its fragments is not documented",
           set("softmax", &Schedule::softmax, Softmax::shared));
}

void ScheduleCheck::copies() const {
  if (s.copy == CopyInstruction::cp_async && !target.async_copy)
    refuse(fmt::format("copy cp_async on {}", target.name), "the target does not have it",
           "copy = vector, or a target from sm_80 up");
}

void ScheduleCheck::chains() const {
  const int chains = s.reduction_chains;
  if (chains != 1 && chains != 2 && chains != 4)
    against("reduction_chains", &Schedule::reduction_chains, 1)(
        "", "the fragments of a row are divided among 1, 2 or 4 chains", "1");
}

void ScheduleCheck::number_formats() const {
  const bool used = std::ranges::any_of(
      f.values, [](const Value& value) { return value.type.dtype == DType::bf16; });
  if (used && !target.bf16)
    refuse(fmt::format("bf16 on {}", target.name),
           "its tensor cores take f16 only, and it has no conversion from f32 to bf16",
           "f16, or a target from sm_80 up");
}

bool ScheduleCheck::warps_fit() const {
  return s.warps_m >= 1 && s.warps_n >= 1 &&
         std::int64_t{32} * s.warps_m * s.warps_n <= target.threads_per_block;
}

void ScheduleCheck::resident_blocks() const {
  const int blocks = s.blocks_per_processor;
  const int threads = warps_fit() ? s.threads() : 128;
  const int most = target.threads_per_processor / threads;
  if (blocks < 1 || blocks > most)
    refuse(fmt::format("{} blocks of {} threads a multiprocessor", blocks, threads),
           fmt::format("{} holds {} threads", target.name, target.threads_per_processor),
           fmt::format("blocks_per_processor = {}", most),
           set("blocks_per_processor", &Schedule::blocks_per_processor, 1));
}

void ScheduleCheck::tiles() const {
  for (const auto& [name, size] : s.tiles) {
    const AxisId axis = f.find_axis(name);
    if (axis && f[axis].alias_of) {
      const std::string& origin = f[f.origin(axis)].name;
      refuse(fmt::format("a tile size for \"{}\"", name),
             fmt::format("it is another name of {}, and has its tiles", origin),
             fmt::format("an entry for {} alone", origin), without_tile(name));
    } else if (!axis || !is_tiled(f[axis])) {
      refuse(fmt::format("a tile size for \"{}\"", name),
             fmt::format("program {} has no tiled axis of that name", f.name),
             fmt::format("its tiled axes are {}", tiled_axes(f)), without_tile(name));
    } else if (size < 16 || size % 16 != 0 || size > 1024) {
      // Which multiple fits depends on the warps as well; four of them, the default, take this one.
      const int near = (std::clamp(size, 1, 1024) + 63) / 64 * 64;
      refuse(fmt::format("tile of {} along {}", size, name),
             "tensor cores and swizzled shared memory work in steps of 16",
             "a multiple of 16 up to 1024", with_tile(name, near));
    }
  }
}

void ScheduleCheck::warps() const {
  if (!warps_fit())
    refuse(fmt::format("{} x {} warps", s.warps_m, s.warps_n),
           fmt::format("that is {} threads; a block of {} has 32 to {}",
                       std::int64_t{32} * s.warps_m * s.warps_n, target.name,
                       target.threads_per_block),
           "warps_m = 4 and warps_n = 1 fit everywhere",
           {"warps_m = 4 and warps_n = 1", [](Schedule& o) { o.warps_m = 4, o.warps_n = 1; }});
}

void ScheduleCheck::stages() const {
  if (s.stages < 1 || s.stages > 8)
    refuse(fmt::format("{} stages", s.stages), "a pipeline has 1 to 8 tiles in flight or in use",
           "2 or 3", set("stages", &Schedule::stages, 2));
}

void ScheduleCheck::missing_tiles() const {
  for (const Axis& axis : f.axes)
    if (is_tiled(axis) && !s.tiles.contains(axis.name))
      refuse(fmt::format("no tile size for axis {}", axis.name),
             fmt::format("program {} cuts it into tiles", f.name),
             fmt::format("schedule.tiles[\"{}\"] = 64", axis.name), with_tile(axis.name, 64));
}

void ScheduleCheck::every_rule() const {
  instruction(), copies(), warpgroups(), computed_rows(), role_registers(), no_producer(),
      producer_warps();
  chains(), ping_pong(), sums_by_products(), outer_stages(), persistence(), positions();
  tile_scheduler(), cluster_splits(), multicast(), end_aligned_tiles(), number_formats();
  resident_blocks(), tiles(), warps(), stages(), missing_tiles();
}

Mending with_tile(const std::string& axis, int size) {
  return {fmt::format("a tile of {} along {}", size, axis),
          [=](Schedule& s) { s.tiles[axis] = size; }};
}

std::vector<std::vector<Mending>> lesser_schedules(const Schedule& schedule) {
  std::vector<std::vector<Mending>> all(1);
  for (int stages = schedule.stages - 1; stages >= 1; --stages)
    all[0].push_back(ScheduleCheck::set("stages", &Schedule::stages, stages));
  for (const auto& [axis, size] : schedule.tiles) {
    std::vector<Mending>& smaller = all.emplace_back();
    for (int half = size / 2; half >= 16 && half % 16 == 0; half /= 2)
      smaller.push_back(with_tile(axis, half));
  }
  return all;
}

std::vector<Reason> check_schedule(const Function& f, const PassContext& context) {
  std::vector<Reason> reasons;
  ScheduleCheck{f, context.schedule, context.target, reasons}.every_rule();
  return reasons;
}

}  // namespace flashcore
