// What a module means: its kernels evaluated one after another.
#pragma once

#include <span>
#include <vector>

#include "dsl/module.h"
#include "runtime/reference/reference.h"

namespace flashcore {

/// Evaluates every kernel as `evaluate` does. `tensors` and `scalars` are the module's, in its
/// order; what kernels give each other is rounded to its dtype. Writes nothing to the tensors, and
/// reads those outputs that kernels add to. Returns the outputs among the tensors. Throws
/// DeviceError for arrays that do not fit, and SpecError for a number that cannot be computed.
std::vector<ReferenceOutput> evaluate(const Module& module, std::span<const TensorView> tensors,
                                      std::span<const ScalarValue> scalars, int multiprocessors,
                                      ReferenceOptions options = {});

}  // namespace flashcore
