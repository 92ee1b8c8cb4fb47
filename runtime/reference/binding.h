// The arrays of one evaluation, checked against the program, and the lengths they bind.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "dsl/ir/function.h"
#include "runtime/tensor.h"

namespace flashcore {

class Binding {
 public:
  /// Throws DeviceError for a missing array, a wrong dtype, rank or length, or memory of a GPU.
  Binding(const ir::Function& f, std::span<const TensorView> tensors,
          std::span<const ScalarValue> scalars);

  [[nodiscard]] std::int64_t length(const Extent& extent) const {
    return extent.of(extent.is_static() ? 0 : lengths_.at(extent.name));
  }
  [[nodiscard]] const TensorView& operator[](ir::TensorId id) const { return tensors_[id.index]; }
  [[nodiscard]] double operator[](ir::ParameterId id) const {
    const ScalarValue& value = scalars_[id.index];
    return value.dtype() == DType::i32 ? value.i32() : double{value.f32()};
  }

 private:
  void bind(const ir::Tensor& tensor, const TensorView& view);

  std::span<const TensorView> tensors_;
  std::span<const ScalarValue> scalars_;
  std::map<std::string, std::int64_t> lengths_;
};

}  // namespace flashcore
