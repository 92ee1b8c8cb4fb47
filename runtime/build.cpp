#include "runtime/build.h"

#include <string>

#include "codegen/generate.h"
#include "runtime/first_fitting.h"

namespace flashcore {

std::shared_ptr<const CompiledKernel> build_first_fitting(const Program& program,
                                                          std::span<const Schedule> schedules,
                                                          const Target& target) {
  return build_under_first_fitting(
      schedules, [&](const Schedule& schedule, std::span<const Schedule> /*safer*/) {
        return CompiledKernel::build(generate(program, schedule, target), std::string(target.name));
      });
}

}  // namespace flashcore
