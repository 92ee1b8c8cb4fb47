#include "runtime/loaded_module.h"

#include <fmt/format.h>

#include "dsl/error.h"
#include "runtime/build.h"
#include "runtime/cuda/device.h"

namespace flashcore {
namespace {

std::vector<std::shared_ptr<const KernelSource>> sources_of(
    std::span<const std::shared_ptr<const CompiledKernel>> kernels) {
  std::vector<std::shared_ptr<const KernelSource>> sources;
  for (const auto& kernel : kernels) sources.push_back(kernel->source());
  return sources;
}

int multiprocessors_for(std::span<const TensorView> tensors) {
  const int device = tensors.empty() ? cpu_device : tensors[0].device;
  return device < 0 ? emulated_multiprocessors : multiprocessors_of(Driver::get(), device);
}

}  // namespace

LoadedModule::LoadedModule(Module module,
                           std::span<const std::shared_ptr<const CompiledKernel>> kernels)
    : plan_(std::move(module), sources_of(kernels)) {
  for (const auto& kernel : kernels) kernels_.push_back(std::make_unique<LoadedKernel>(kernel));
}

void LoadedModule::prepare(int device) {
  for (const auto& kernel : kernels_) kernel->prepare(device);
}

std::size_t LoadedModule::workspace_bytes(std::span<const TensorView> tensors,
                                          std::span<const ScalarValue> scalars) const {
  return plan_.bind(tensors, scalars, multiprocessors_for(tensors)).workspace_bytes;
}

void LoadedModule::launch(std::span<const TensorView> tensors, std::span<const ScalarValue> scalars,
                          WorkspaceMemory workspace, CudaStream stream) {
  const ModulePlan::Bound bound = plan_.bind(tensors, scalars, multiprocessors_for(tensors));
  const auto address = reinterpret_cast<std::uintptr_t>(workspace.data);
  if (workspace.bytes < bound.workspace_bytes || address % ModulePlan::workspace_alignment != 0)
    throw DeviceError({fmt::format("a launch of {}", plan_.signature().name),
                       fmt::format("its workspace has {} bytes at {:#x}, and it wants {} at a "
                                   "multiple of {}",
                                   workspace.bytes, address, bound.workspace_bytes,
                                   ModulePlan::workspace_alignment),
                       "memory of workspace_bytes(tensors, scalars) bytes on the tensors' GPU",
                       {}});
  plan_.run(bound, tensors, scalars, workspace.data,
            [&](std::size_t kernel, std::span<const TensorView> its_tensors,
                std::span<const ScalarValue> its_scalars) {
              kernels_[kernel]->launch(its_tensors, its_scalars, stream);
            });
}

std::vector<std::shared_ptr<const CompiledKernel>> build_first_fitting(
    const Module& module, std::span<const std::vector<Schedule>> schedules, const Target& target) {
  if (schedules.size() != module.kernels().size())
    throw ScheduleError({fmt::format("a build of the module {}", module.name()),
                         fmt::format("it has {} kernels, and {} lists of schedules are given",
                                     module.kernels().size(), schedules.size()),
                         "one list a kernel, in the module's order",
                         {}});
  std::vector<std::shared_ptr<const CompiledKernel>> built;
  for (std::size_t i = 0; i < schedules.size(); ++i)
    built.push_back(build_first_fitting(module.kernels()[i], schedules[i], target));
  return built;
}

}  // namespace flashcore
