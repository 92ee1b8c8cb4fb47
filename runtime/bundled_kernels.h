// The kernels of a program that one bundle has, for a dispatcher whose launches take no others:
// no code generation, no compiler, whatever else is in use.
#pragma once

#include <memory>

#include "dsl/program.h"
#include "dsl/schedule.h"
#include "dsl/target.h"
#include "runtime/bundle/bundle.h"
#include "runtime/dispatcher.h"
#include "runtime/kernel.h"

namespace flashcore {

/// The kernel of a program under a schedule. Throws CacheMissError if the bundle does not say that
/// it has it, and CompileError or CacheError for an entry that is damaged.
std::shared_ptr<const CompiledKernel> read_bundled_kernel(const Bundle& bundle,
                                                          const Program& program,
                                                          const Schedule& schedule,
                                                          const Target& target);

/// Has a dispatcher find its kernels there.
Dispatcher::Builds builds_from_bundle(std::shared_ptr<const Bundle> bundle, const Target& target);

}  // namespace flashcore
