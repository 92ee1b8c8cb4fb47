// What can be launched: a program under one schedule, however its code came about.
#pragma once

#include <memory>
#include <span>

#include "codegen/kernel_source.h"
#include "runtime/cuda/driver.h"
#include "runtime/tensor.h"

namespace flashcore {

class Launchable {
 public:
  Launchable() = default;
  Launchable(const Launchable&) = delete;
  Launchable& operator=(const Launchable&) = delete;
  virtual ~Launchable() = default;

  /// What it takes. The text is for reading: it may come from a bundle.
  [[nodiscard]] virtual std::shared_ptr<const KernelSource> shared_source() const = 0;
  /// Loads the code for a GPU.
  virtual void prepare(int device) = 0;
  /// Tensors and scalars in the order of the program, asynchronous on the caller's stream.
  virtual void launch(std::span<const TensorView> tensors, std::span<const ScalarValue> scalars,
                      CudaStream stream) = 0;
};

}  // namespace flashcore
