#include "codegen/generate.h"

#include <fmt/format.h>

#include "codegen/pass.h"
#include "codegen/print/kernel_printer.h"
#include "codegen/print/prelude_text.h"
#include "dsl/error.h"
#include "dsl/ir/verify.h"

namespace flashcore {
namespace {

ir::Function lower(const Program& program, const Schedule& schedule, const Target& target,
                   const PassObserver& observer) {
  ir::Function f = program.function();
  if (observer) observer("built", f);
  const PassContext context{schedule, target};
  for (const Pass& pass : pipeline()) {
    pass.run(f, context);
    ir::verify_after(f, pass.name);
    if (observer) observer(pass.name, f);
  }
  return f;
}

/// Nearby schedules that do fit in shared memory, in words.
std::string fitting_alternatives(const Program& program, const Schedule& schedule,
                                 const Target& target) {
  std::string found;
  const auto consider = [&](const Schedule& candidate, const std::string& words) {
    try {
      lower(program, candidate, target, {});
      found += (found.empty() ? "" : ", or ") + words;
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  for (int stages = schedule.stages - 1; stages >= 1; --stages) {
    Schedule candidate = schedule;
    candidate.stages = stages;
    if (consider(candidate, fmt::format("stages = {}", stages))) break;
  }
  for (const auto& [axis, size] : schedule.tiles)
    for (int smaller = size / 2; smaller >= 16 && smaller % 16 == 0; smaller /= 2) {
      Schedule candidate = schedule;
      candidate.tiles[axis] = smaller;
      if (consider(candidate, fmt::format("a tile of {} along {}", smaller, axis))) break;
    }
  return found.empty() ? "smaller tiles and fewer stages together" : found;
}

void check_target(const Schedule& schedule, const Target& target) {
  if (schedule.instruction == Instruction::mma_m16n8k16 && !target.mma_m16n8k16)
    throw ScheduleError({fmt::format("instruction mma_m16n8k16 on {}", target.name),
                         "the target does not have it", "a target from sm_80 up", {}});
  if (schedule.copy == CopyInstruction::cp_async && !target.async_copy)
    throw ScheduleError({fmt::format("copy cp_async on {}", target.name),
                         "the target does not have it", "a target from sm_80 up", {}});
  const int registers = target.registers_per_thread;
  if (schedule.register_limit < 24 || schedule.register_limit > registers)
    throw ScheduleError({fmt::format("register_limit = {}", schedule.register_limit),
                         fmt::format("a thread of {} has 24 to {}", target.name, registers),
                         fmt::format("{}", registers), {}});
  const int resident = schedule.blocks_per_processor * schedule.threads();
  if (schedule.blocks_per_processor < 1 || resident > target.threads_per_processor)
    throw ScheduleError(
        {fmt::format("{} blocks of {} threads a multiprocessor", schedule.blocks_per_processor,
                     schedule.threads()),
         fmt::format("{} holds {} threads", target.name, target.threads_per_processor),
         fmt::format("blocks_per_processor = {}",
                     std::max(1, target.threads_per_processor / schedule.threads())),
         {}});
}

}  // namespace

KernelSource generate(const Program& program, const Schedule& schedule, const Target& target,
                      const PassObserver& observer) {
  check_target(schedule, target);
  ir::Function f;
  try {
    f = lower(program, schedule, target, observer);
  } catch (const ScheduleError& error) {
    Complaint complaint = error.complaint();
    if (!complaint.fix.empty()) throw;
    complaint.fix = fitting_alternatives(program, schedule, target);
    throw ScheduleError(complaint);
  }
  KernelSource source = KernelPrinter(f, schedule).print();
  source.prelude = prelude_for(source.body);
  return source;
}

std::vector<std::string_view> pass_names() {
  std::vector<std::string_view> names;
  for (const Pass& pass : pipeline()) names.push_back(pass.name);
  return names;
}

std::vector<std::string> why_not(const Program& program, const Schedule& schedule,
                                 const Target& target) {
  try {
    generate(program, schedule, target);
  } catch (const Error& error) {
    return {error.what()};
  }
  return {};
}

}  // namespace flashcore
