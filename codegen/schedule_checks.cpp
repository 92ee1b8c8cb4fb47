#include "codegen/schedule_checks.h"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

#include "codegen/instructions/instruction.h"
#include "codegen/schedule_rules.h"

namespace flashcore {
namespace {

using namespace ir;
using namespace schedule_rules;

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

/// What the schedule's instruction needs of the target and of the rest of the schedule.
void instruction(const ScheduleCheck& check) {
  const TensorInstruction& described_one = describe(check.schedule.instruction);
  const std::string name(name_of(described_one.name));
  if (described_one.available && !(check.target.*described_one.available))
    check.refuse(fmt::format("instruction {} on {}", name, check.target.name),
                 "the target does not have it", std::string(described_one.instead));
  if (described_one.opaque && check.schedule.softmax == Softmax::registers)
    check.refuse(fmt::format("instruction {} with softmax = registers", name),
                 "which lane holds which element of its fragments is not documented",
                 set("softmax", &Schedule::softmax, Softmax::shared));
}

void copies(const ScheduleCheck& check) {
  if (check.schedule.copy == CopyInstruction::cp_async && !check.target.async_copy)
    check.refuse(fmt::format("copy cp_async on {}", check.target.name),
                 "the target does not have it", "copy = vector, or a target from sm_80 up");
}

void chains(const ScheduleCheck& check) {
  const int chains = check.schedule.reduction_chains;
  if (chains != 1 && chains != 2 && chains != 4)
    check.against("reduction_chains", &Schedule::reduction_chains, 1)(
        "", "the fragments of a row are divided among 1, 2 or 4 chains", "1");
}

void number_formats(const ScheduleCheck& check) {
  const bool used = std::any_of(check.f.values.begin(), check.f.values.end(),
                                [](const Value& value) { return value.type.dtype == DType::bf16; });
  if (used && !check.target.bf16)
    check.refuse(fmt::format("bf16 on {}", check.target.name),
                 "its tensor cores take f16 only, and it has no conversion from f32 to bf16",
                 "f16, or a target from sm_80 up");
}

void register_limit(const ScheduleCheck& check) {
  const int registers = check.target.registers_per_thread;
  if (check.schedule.register_limit < 24 || check.schedule.register_limit > registers)
    check.against("register_limit", &Schedule::register_limit, registers)(
        "", fmt::format("a thread of {} has 24 to {}", check.target.name, registers),
        fmt::format("{}", registers));
}

void shared_limit(const ScheduleCheck& check) {
  if (check.schedule.shared_limit < 0 ||
      check.schedule.shared_limit > check.target.shared_per_block)
    check.against("shared_limit", &Schedule::shared_limit, 0)(
        "",
        fmt::format("a block of {} has up to {} bytes of shared memory", check.target.name,
                    check.target.shared_per_block),
        "0, which is all of it");
}

std::int64_t thread_count(const Schedule& schedule) {
  return std::int64_t{32} * schedule.warps_m * schedule.warps_n;
}

bool warps_fit(const ScheduleCheck& check) {
  return check.schedule.warps_m >= 1 && check.schedule.warps_n >= 1 &&
         thread_count(check.schedule) <= check.target.threads_per_block;
}

void resident_blocks(const ScheduleCheck& check) {
  const int blocks = check.schedule.blocks_per_processor;
  const int threads = warps_fit(check) ? check.schedule.threads() : 128;
  const int most = check.target.threads_per_processor / threads;
  if (blocks < 1 || blocks > most)
    check.refuse(
        fmt::format("{} blocks of {} threads a multiprocessor", blocks, threads),
        fmt::format("{} holds {} threads", check.target.name, check.target.threads_per_processor),
        fmt::format("blocks_per_processor = {}", most),
        set("blocks_per_processor", &Schedule::blocks_per_processor, 1));
}

Mending without_tile(const std::string& axis) {
  return {"", [=](Schedule& s) { s.tiles.erase(axis); }};
}

void tiles(const ScheduleCheck& check) {
  for (const auto& [name, size] : check.schedule.tiles) {
    const AxisId axis = check.f.find_axis(name);
    if (axis && check.f[axis].alias_of) {
      const std::string& origin = check.f[check.f.origin(axis)].name;
      check.refuse(fmt::format("a tile size for \"{}\"", name),
                   fmt::format("it is another name of {}, and has its tiles", origin),
                   fmt::format("an entry for {} alone", origin), without_tile(name));
    } else if (!axis || !is_tiled(check.f[axis])) {
      check.refuse(fmt::format("a tile size for \"{}\"", name),
                   fmt::format("program {} has no tiled axis of that name", check.f.name),
                   fmt::format("its tiled axes are {}", tiled_axes(check.f)), without_tile(name));
    } else if (size < 16 || size % 16 != 0 || size > 1024) {
      // Which multiple fits depends on the warps as well; four of them, the default, take this one.
      const int near = (std::clamp(size, 1, 1024) + 63) / 64 * 64;
      check.refuse(fmt::format("tile of {} along {}", size, name),
                   "tensor cores and swizzled shared memory work in steps of 16",
                   "a multiple of 16 up to 1024", with_tile(name, near));
    }
  }
}

void warps(const ScheduleCheck& check) {
  if (!warps_fit(check))
    check.refuse(
        fmt::format("{} x {} warps", check.schedule.warps_m, check.schedule.warps_n),
        fmt::format("that is {} threads; a block of {} has 32 to {}", thread_count(check.schedule),
                    check.target.name, check.target.threads_per_block),
        "warps_m = 4 and warps_n = 1 fit everywhere",
        {"warps_m = 4 and warps_n = 1", [](Schedule& s) { s.warps_m = 4, s.warps_n = 1; }});
}

void stages(const ScheduleCheck& check) {
  if (check.schedule.stages < 1 || check.schedule.stages > 8)
    check.refuse(fmt::format("{} stages", check.schedule.stages),
                 "a pipeline has 1 to 8 tiles in flight or in use", "2 or 3",
                 set("stages", &Schedule::stages, 2));
}

void missing_tiles(const ScheduleCheck& check) {
  for (const Axis& axis : check.f.axes)
    if (is_tiled(axis) && !check.schedule.tiles.contains(axis.name))
      check.refuse(fmt::format("no tile size for axis {}", axis.name),
                   fmt::format("program {} cuts it into tiles", check.f.name),
                   fmt::format("schedule.tiles[\"{}\"] = 64", axis.name), with_tile(axis.name, 64));
}

constexpr Rule* rules[] = {
    instruction,    copies,         warpgroups,     computed_rows,    register_budgets,
    no_producer,    chains,         ping_pong,      sums_by_products, outer_stages,
    persistence,    positions,      tile_scheduler, cluster_splits,   multicast,
    number_formats, register_limit, shared_limit,   resident_blocks,  tiles,
    warps,          stages,         missing_tiles};

}  // namespace

Mending with_tile(const std::string& axis, int size) {
  return {fmt::format("a tile of {} along {}", size, axis),
          [=](Schedule& s) { s.tiles[axis] = size; }};
}

std::vector<std::vector<Mending>> lesser_schedules(const Schedule& schedule) {
  std::vector<std::vector<Mending>> all(1);
  for (int stages = schedule.stages - 1; stages >= 1; --stages)
    all[0].push_back(set("stages", &Schedule::stages, stages));
  for (const auto& [axis, size] : schedule.tiles) {
    std::vector<Mending>& smaller = all.emplace_back();
    for (int half = size / 2; half >= 16 && half % 16 == 0; half /= 2)
      smaller.push_back(with_tile(axis, half));
  }
  return all;
}

std::vector<Reason> check_schedule(const Function& f, const PassContext& context) {
  std::vector<Reason> reasons;
  const ScheduleCheck check{f, context.schedule, context.target, reasons};
  for (Rule* const rule : rules) rule(check);
  return reasons;
}

}  // namespace flashcore
