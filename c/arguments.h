// What callers of the C interface launch with, as the runtime takes it.
#pragma once

#include <span>
#include <vector>

#include "c/flashcore.h"
#include "runtime/tensor.h"

namespace flashcore::c {

/// Throws SpecError for what is no tensor or no scalar.
struct Arguments {
  Arguments(std::span<const fc_tensor> given, std::span<const fc_scalar> numbers);

  std::vector<TensorView> tensors;
  std::vector<ScalarValue> scalars;
};

}  // namespace flashcore::c
