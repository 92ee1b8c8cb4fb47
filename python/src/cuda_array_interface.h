// Arrays on a GPU that describe themselves by __cuda_array_interface__, versions 2 and 3: Numba's,
// CuPy's, PyCUDA's (numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html).
#pragma once

#include <optional>

#include <pybind11/pybind11.h>

#include "runtime/cuda/driver.h"
#include "runtime/tensor.h"

namespace flashcore::python {

struct CudaInterfaceArray {
  TensorView view;
  /// On which the producer's work is queued, and ours has to come after it; none: it is done.
  std::optional<CudaStream> stream;
};

/// Throws DeviceError for what kernels do not take. Needs the GIL.
CudaInterfaceArray read_cuda_interface(pybind11::handle array, const char* name, int at,
                                       bool output);

}  // namespace flashcore::python
