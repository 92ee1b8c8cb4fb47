#include "runtime/launchable_module.h"

#include <future>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "dsl/error.h"
#include "runtime/build.h"
#include "runtime/cuda/device.h"
#include "runtime/tiered_kernel.h"

namespace flashcore {
namespace {

std::vector<std::shared_ptr<const KernelSource>> sources_of(
    const std::vector<LaunchableModule::Kernel>& kernels) {
  std::vector<std::shared_ptr<const KernelSource>> sources;
  for (const LaunchableModule::Kernel& kernel : kernels) sources.push_back(kernel->shared_source());
  return sources;
}

std::vector<LaunchableModule::Kernel> launchable(
    std::span<const std::shared_ptr<const CompiledKernel>> compiled) {
  std::vector<LaunchableModule::Kernel> kernels;
  for (const auto& kernel : compiled) kernels.push_back(std::make_shared<TieredKernel>(kernel));
  return kernels;
}

}  // namespace

LaunchableModule::LaunchableModule(Module module, std::vector<Kernel> kernels)
    : kernels_(std::move(kernels)), plan_(std::move(module), sources_of(kernels_)) {}

LaunchableModule::LaunchableModule(Module module,
                                   std::span<const std::shared_ptr<const CompiledKernel>> kernels)
    : LaunchableModule(std::move(module), launchable(kernels)) {}

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

LaunchableModule build_first_fitting(const Module& module,
                                     std::span<const std::vector<Schedule>> schedules,
                                     const Target& target) {
  if (schedules.size() != module.kernels().size())
    throw ScheduleError({fmt::format("a build of the module {}", module.name()),
                         fmt::format("it has {} kernels, and {} lists of schedules are given",
                                     module.kernels().size(), schedules.size()),
                         "one list a kernel, in the module's order",
                         {}});
  using Built = std::shared_ptr<const CompiledKernel>;
  std::vector<std::future<Built>> builds;
  for (std::size_t i = 0; i < schedules.size(); ++i)
    builds.push_back(std::async(std::launch::async, [&, i] {
      return build_first_fitting(module.kernels()[i], schedules[i], target);
    }));
  std::vector<Built> built;
  for (std::future<Built>& build : builds) built.push_back(build.get());
  return {module, built};
}

}  // namespace flashcore
