#include "tests/support/program_kernels.h"

#include "codegen/generate.h"
#include "dsl/error.h"
#include "dsl/json.h"

namespace flashcore {

ProgramKernels generate_for(const Program& program, const std::vector<Schedule>& schedules,
                            const Target& target, bool all_schedules) {
  ProgramKernels made{program, {}};
  for (const Schedule& schedule : schedules) {
    try {
      made.kernels.push_back({schedule, generate(program, schedule, target)});
    } catch (const ScheduleError&) {
      continue;  // the next one is what a user gets
    }
    if (!all_schedules) break;
  }
  return made;
}

std::string text_of(std::span<const ProgramKernels> programs) {
  std::string text;
  for (const ProgramKernels& program : programs)
    for (const ScheduledKernel& kernel : program.kernels)
      text += to_json(kernel.schedule) + kernel.source.text();
  return text;
}

}  // namespace flashcore
