#include "runtime/launchable_module.h"

#include <utility>

#include "runtime/cuda/device.h"

namespace flashcore {
namespace {

std::vector<std::shared_ptr<const KernelSource>> sources_of(
    const std::vector<LaunchableModule::Kernel>& kernels) {
  std::vector<std::shared_ptr<const KernelSource>> sources;
  for (const LaunchableModule::Kernel& kernel : kernels) sources.push_back(kernel->shared_source());
  return sources;
}

}  // namespace

LaunchableModule::LaunchableModule(Module module, std::vector<Kernel> kernels)
    : kernels_(std::move(kernels)), plan_(std::move(module), sources_of(kernels_)) {}

void LaunchableModule::prepare(int device) {
  for (const Kernel& kernel : kernels_) kernel->prepare(device);
}

ModulePlan::Bound LaunchableModule::bind(std::span<const TensorView> tensors,
                                         std::span<const ScalarValue> scalars) const {
  const int device = tensors.empty() ? cpu_device : tensors[0].device;
  return plan_.bind(
      tensors, scalars,
      device < 0 ? emulated_multiprocessors : multiprocessors_of(Driver::get(), device));
}

void LaunchableModule::launch(std::span<const TensorView> tensors,
                              std::span<const ScalarValue> scalars, CudaStream stream,
                              Workspace& workspace) const {
  const ModulePlan::Bound bound = bind(tensors, scalars);
  void* const memory =
      bound.workspace_bytes > 0 ? workspace.reserve(bound.workspace_bytes) : nullptr;
  plan_.run(bound, tensors, scalars, memory,
            [&](std::size_t kernel, std::span<const TensorView> its_tensors,
                std::span<const ScalarValue> its_scalars) {
              kernels_[kernel]->launch(its_tensors, its_scalars, stream);
            });
}

}  // namespace flashcore
