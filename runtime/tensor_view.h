// An array as a launch sees it: where it lies and how it is laid out. It owns nothing and allocates
// nothing, since a launch builds one for each argument.
#pragma once

#include <array>
#include <cstdint>

#include "dsl/dtype.h"

namespace flashcore {

struct TensorView {
  static constexpr int max_rank = 8;

  void* data = nullptr;
  DType dtype = DType::f32;
  int rank = 0;
  std::array<std::int64_t, max_rank> shape{};
  std::array<std::int64_t, max_rank> strides{};  ///< in elements
  int device = -1;                               ///< CUDA ordinal; -1 is memory of the host
};

}  // namespace flashcore
