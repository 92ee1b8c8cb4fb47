#include "runtime/build.h"

#include <exception>
#include <string>

#include "codegen/generate.h"
#include "dsl/error.h"

namespace flashcore {

std::shared_ptr<const CompiledKernel> build_first_fitting(const Program& program,
                                                          std::span<const Schedule> schedules,
                                                          const Target& target) {
  std::exception_ptr first;
  const auto note = [&] {
    if (!first) first = std::current_exception();
  };
  for (const Schedule& schedule : schedules) {
    try {
      return CompiledKernel::build(generate(program, schedule, target), std::string(target.name));
    } catch (const ScheduleError&) {
      note();
    } catch (const CompileError&) {
      note();
    }
  }
  if (first) std::rethrow_exception(first);
  throw ScheduleError({.what = "a build under no schedule",
                       .why = "the list is empty",
                       .fix = "attention_schedules(spec, target)",
                       .where = {}});
}

}  // namespace flashcore
