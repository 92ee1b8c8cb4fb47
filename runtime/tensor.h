// What a caller hands to a kernel: views of arrays that somebody else owns, and numbers.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <initializer_list>

#include "dsl/dtype.h"

namespace flashcore {

constexpr int max_rank = 5;
constexpr int cpu_device = -1;
constexpr int no_device = -2;  ///< a shape without memory: a launch checks it and computes nothing

/// An array on a GPU or in CPU memory. Shape and strides are inline: a launch allocates nothing.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::f32;
  int rank = 0;
  int device = cpu_device;  ///< ordinal of the GPU, or one of the above
  std::array<std::int64_t, max_rank> shape{};
  std::array<std::int64_t, max_rank> strides{};  ///< in elements

  /// A dense array, last dimension fastest.
  static TensorView dense(void* data, DType dtype, std::initializer_list<std::int64_t> shape,
                          int device) {
    TensorView view{.data = data, .dtype = dtype, .device = device};
    for (const std::int64_t size : shape) view.shape[view.rank++] = size;
    std::int64_t stride = 1;
    for (int dim = view.rank - 1; dim >= 0; --dim) {
      view.strides[dim] = stride;
      stride *= view.shape[dim];
    }
    return view;
  }
};

/// The value of a scalar argument. A number converts to it: `launch(tensors, {0.125})`.
class ScalarValue {
 public:
  // NOLINTBEGIN(google-explicit-constructor)
  ScalarValue() : ScalarValue(0.F) {}
  ScalarValue(float value) : dtype_(DType::f32), f32_(value) {}
  ScalarValue(double value) : ScalarValue(static_cast<float>(value)) {}
  ScalarValue(std::int32_t value) : dtype_(DType::i32), i32_(value) {}
  // NOLINTEND(google-explicit-constructor)

  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] float f32() const { return f32_; }
  [[nodiscard]] std::int32_t i32() const { return i32_; }
  /// To the bit: a launch with one is a launch with the other.
  bool operator==(const ScalarValue& other) const {
    return dtype_ == other.dtype_ &&
           (dtype_ == DType::f32
                ? std::bit_cast<std::uint32_t>(f32_) == std::bit_cast<std::uint32_t>(other.f32_)
                : i32_ == other.i32_);
  }
  [[nodiscard]] bool is_positive() const { return dtype_ == DType::f32 ? f32_ > 0 : i32_ > 0; }

 private:
  DType dtype_;
  union {
    float f32_;
    std::int32_t i32_;
  };
};

}  // namespace flashcore
