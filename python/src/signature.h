// What a kernel or a module takes, as Python reads it.
#pragma once

#include <pybind11/pybind11.h>

#include "codegen/kernel_source.h"

namespace flashcore::python {

/// (name, dtype, whether it is an output, dimensions: lengths or the names of extents) of each.
pybind11::list tensors_of(const KernelSource& source);
/// (name, dtype, whether it has to be positive) of each.
pybind11::list scalars_of(const KernelSource& source);

}  // namespace flashcore::python
