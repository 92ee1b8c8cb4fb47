// The usual way from a program to code: generate and compile, under the first schedule that fits.
#pragma once

#include <memory>
#include <span>

#include "dsl/program.h"
#include "dsl/schedule.h"
#include "dsl/target.h"
#include "runtime/kernel.h"

namespace flashcore {

/// Tries the schedules in turn and returns the first kernel that the target can run and whose code
/// neither spills nor exceeds its budget. If there is none, throws what was wrong with the first.
/// What a schedule that does not fit compiled to is cached as well, so that trying it costs no
/// compile the next time.
std::shared_ptr<const CompiledKernel> build_first_fitting(const Program& program,
                                                          std::span<const Schedule> schedules,
                                                          const Target& target);

}  // namespace flashcore
