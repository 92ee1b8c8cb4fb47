#include "codegen/generate.h"

#include <fmt/format.h>

#include "codegen/prelude.h"
#include "codegen/print/kernel_printer.h"
#include "dsl/error.h"
#include "dsl/ir/verify.h"

namespace flashcore {
namespace {

ir::Function run_passes(const Program& program, const Schedule& schedule, const Target& target,
                        const PassObserver& observer, PassNotes* notes = nullptr) {
  ir::Function f = program.function();
  if (observer) observer("built", f);
  const PassContext context{schedule, target, notes};
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
      run_passes(program, candidate, target, {});
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

}  // namespace

ir::Function lower(const Program& program, const Schedule& schedule, const Target& target,
                   const PassObserver& observer, PassNotes* notes) {
  try {
    return run_passes(program, schedule, target, observer, notes);
  } catch (const ScheduleError& error) {
    Complaint complaint = error.complaint();
    if (!complaint.fix.empty()) throw;
    complaint.fix = fitting_alternatives(program, schedule, target);
    throw ScheduleError(complaint);
  }
}

KernelSource generate(const Program& program, const Schedule& schedule, const Target& target,
                      const PassObserver& observer, PassNotes* notes) {
  const ir::Function f = lower(program, schedule, target, observer, notes);
  KernelSource source = KernelPrinter(f, schedule).print();
  source.prelude = prelude_for(source.body);
  return source;
}

std::vector<std::string_view> pass_names() {
  std::vector<std::string_view> names;
  for (const Pass& pass : pipeline()) names.push_back(pass.name);
  return names;
}

}  // namespace flashcore
