// What Python passes to a launch, read once: arrays as views, numbers in 32 bits.
#pragma once

#include <span>

#include <pybind11/pybind11.h>

#include "codegen/kernel_source.h"
#include "dsl/inline_list.h"
#include "python/src/arrays.h"
#include "runtime/launch.h"
#include "runtime/tensor.h"

namespace flashcore::python {

/// A number in 32 bits. Throws SpecError where it does not fit.
ScalarValue scalar_of(pybind11::handle number, const ScalarArgument& expected);

/// Borrows the arrays until it dies. Needs the GIL to be made and to die.
class LaunchArguments {
 public:
  static constexpr int max_tensors = 16;
  static constexpr int max_scalars = 16;

  /// Arrays and numbers in the order of the program; `stream` may be None. Throws SpecError,
  /// DeviceError or LayoutError that names the argument.
  LaunchArguments(const KernelSource& source, const pybind11::tuple& arrays,
                  const pybind11::tuple& scalars, pybind11::handle stream);

  [[nodiscard]] std::span<const TensorView> tensors() const { return tensors_.span(); }
  [[nodiscard]] std::span<const ScalarValue> scalars() const { return scalars_.span(); }
  [[nodiscard]] bool on_gpu() const { return !tensors().empty() && tensors()[0].device >= 0; }
  /// Null for arrays in CPU memory.
  [[nodiscard]] CudaStream stream() const { return stream_; }

 private:
  ArrayReader reader_;
  InlineList<TensorView, max_tensors> tensors_;
  InlineList<ScalarValue, max_scalars> scalars_;
  CudaStream stream_ = nullptr;
};

}  // namespace flashcore::python
