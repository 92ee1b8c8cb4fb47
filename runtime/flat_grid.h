// CUDA's grid has at most 65,535 blocks along two of its axes. A launch of more takes a kernel under
// the same schedule with `flat_grid`, which numbers its blocks along one axis.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <span>

#include "runtime/launchable.h"

namespace flashcore {

/// A kernel for launches of any number of blocks. Thread-safe, as what it launches is.
class AnyGrid final : public Launchable {
 public:
  using Kernel = std::shared_ptr<Launchable>;

  /// `flat` makes the other kernel, at the first launch that wants it.
  AnyGrid(Kernel kernel, std::function<Kernel()> flat);

  [[nodiscard]] std::shared_ptr<const KernelSource> shared_source() const override {
    return kernel_->shared_source();
  }
  void prepare(int device) override { kernel_->prepare(device); }
  void launch(std::span<const TensorView> tensors, std::span<const ScalarValue> scalars,
              CudaStream stream) override;

 private:
  Launchable& flat();

  const Kernel kernel_;
  const std::function<Kernel()> make_flat_;
  std::mutex mutex_;
  Kernel flat_;
};

}  // namespace flashcore
