// What Python passes to a launch, read once: arrays as views, numbers in 32 bits.
#pragma once

#include <cstddef>
#include <new>
#include <span>
#include <type_traits>

#include <pybind11/pybind11.h>

#include "codegen/kernel_source.h"
#include "python/src/arrays.h"
#include "runtime/launch.h"
#include "runtime/tensor.h"

namespace flashcore::python {

/// Values on the stack of a call.
template <class Value, int capacity>
class Inline {
 public:
  Value& push(const Value& value) { return *new (&slots_[count_++]) Value(value); }
  [[nodiscard]] std::span<const Value> span() const {
    return {reinterpret_cast<const Value*>(slots_), static_cast<std::size_t>(count_)};
  }

 private:
  static_assert(std::is_trivially_destructible_v<Value>);
  struct alignas(Value) Slot {
    std::byte bytes[sizeof(Value)];
  };
  Slot slots_[capacity];
  int count_ = 0;
};

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
  Inline<TensorView, max_tensors> tensors_;
  Inline<ScalarValue, max_scalars> scalars_;
  CudaStream stream_ = nullptr;
};

}  // namespace flashcore::python
