#include "codegen/generate.h"

#include <algorithm>

#include "codegen/prelude.h"
#include "codegen/print/kernel_printer.h"
#include "codegen/schedule_checks.h"
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
  const auto fits = [&](const Mending& mending) {
    Schedule candidate = schedule;
    mending.change(candidate);
    try {
      run_passes(program, candidate, target, {});
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  std::string found;
  for (const std::vector<Mending>& alike : lesser_schedules(schedule))
    if (const auto first = std::ranges::find_if(alike, fits); first != alike.end())
      found += (found.empty() ? "" : ", or ") + first->words;
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
