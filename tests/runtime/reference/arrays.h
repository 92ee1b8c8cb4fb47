// Small dense arrays for tests of the reference.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "dsl/ir/parse.h"
#include "dsl/ir/verify.h"
#include "runtime/reference/formats.h"
#include "runtime/reference/reference.h"

namespace flashcore {

/// A dense array that owns its bytes.
class Array {
 public:
  Array(DType dtype, std::vector<std::int64_t> shape, const std::vector<double>& values = {})
      : dtype_(dtype), shape_(std::move(shape)) {
    std::int64_t elements = 1;
    for (const std::int64_t length : shape_) elements *= length;
    bytes_.resize(static_cast<std::size_t>(elements * size_of(dtype)) + 8);
    for (std::size_t i = 0; i < values.size(); ++i)
      write_element(dtype, bytes_.data(), static_cast<std::int64_t>(i), values[i]);
  }

  [[nodiscard]] TensorView view() {
    TensorView view{.data = bytes_.data(), .dtype = dtype_};
    view.rank = static_cast<int>(shape_.size());
    std::int64_t stride = 1;
    for (int i = view.rank; i-- > 0;) {
      view.shape[i] = shape_[i];
      view.strides[i] = stride;
      stride *= shape_[i];
    }
    return view;
  }
  [[nodiscard]] double operator[](std::int64_t i) const {
    return read_element(dtype_, bytes_.data(), i);
  }

 private:
  DType dtype_;
  std::vector<std::int64_t> shape_;
  std::vector<std::byte> bytes_;
};

/// Evaluates the text of a program.
inline std::vector<ReferenceOutput> evaluate_text(std::string_view text, std::vector<Array> arrays,
                                                  std::vector<ScalarValue> scalars = {},
                                                  ReferenceOptions options = {}) {
  const ir::Function f = ir::parse(text);
  ir::verify(f);
  std::vector<TensorView> views;
  for (Array& array : arrays) views.push_back(array.view());
  return evaluate(f, views, scalars, options);
}

inline constexpr ReferenceOptions in_storage{Precision::storage, Tiling::whole};
inline constexpr ReferenceOptions in_tiles{Precision::exact, Tiling::scheduled};

}  // namespace flashcore
