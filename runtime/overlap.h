// Whether two arrays share memory: an output that does is written while others still read.
#pragma once

#include <span>

#include "codegen/kernel_source.h"
#include "runtime/tensor.h"

namespace flashcore {

/// Whether some byte belongs to an element of both. Exact for views of one buffer that lie between
/// each other's rows; where that would take too long to find out, true.
bool share_memory(const TensorView& a, const TensorView& b);

/// Throws DeviceError where an output shares memory with another argument of the launch.
void check_outputs_apart(const KernelSource& source, std::span<const TensorView> tensors);

}  // namespace flashcore
