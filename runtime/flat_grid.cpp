#include "runtime/flat_grid.h"

#include <utility>

#include "runtime/hooks.h"
#include "runtime/launch_errors.h"
#include "runtime/no_fork.h"

namespace flashcore {

AnyGrid::AnyGrid(Kernel kernel, std::function<Kernel()> flat)
    : kernel_(std::move(kernel)), make_flat_(std::move(flat)) {}

void AnyGrid::launch(std::span<const TensorView> tensors, std::span<const ScalarValue> scalars,
                     CudaStream stream) {
  try {
    kernel_->launch(tensors, scalars, stream);
  } catch (const GridError&) {
    flat().launch(tensors, scalars, stream);
  }
}

Launchable& AnyGrid::flat() {
  const HookDeferral messages_after_the_lock;
  const NoFork whole;
  const std::lock_guard lock(mutex_);
  if (!flat_) flat_ = make_flat_();
  return *flat_;
}

}  // namespace flashcore
