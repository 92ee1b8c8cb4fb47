#include "runtime/emulator/emulated_module.h"

#include <cstdint>

namespace flashcore {

EmulatedModule::EmulatedModule(ModulePlan plan, std::vector<LaunchPlan> launches,
                               std::vector<EmulatedKernel> kernels)
    : plan_(std::move(plan)), launches_(std::move(launches)), kernels_(std::move(kernels)) {}

EmulatedModule EmulatedModule::build(Module module,
                                     std::span<const std::shared_ptr<const KernelSource>> sources,
                                     const HostCompileOptions& options) {
  std::vector<LaunchPlan> launches;
  std::vector<EmulatedKernel> kernels;
  for (const std::shared_ptr<const KernelSource>& source : sources) {
    launches.emplace_back(source);
    kernels.push_back(EmulatedKernel::build(*source, options));
  }
  return {ModulePlan(std::move(module), sources), std::move(launches), std::move(kernels)};
}

std::vector<EmulationReport> EmulatedModule::run(std::span<const TensorView> tensors,
                                                 std::span<const ScalarValue> scalars,
                                                 int multiprocessors) const {
  const ModulePlan::Bound bound = plan_.bind(tensors, scalars, multiprocessors);
  // All bits set is a NaN in every float.
  std::vector<std::uint64_t> memory(
      (bound.workspace_bytes + ModulePlan::workspace_alignment) / sizeof(std::uint64_t),
      ~std::uint64_t{0});
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  const std::size_t past =
      (ModulePlan::workspace_alignment - begin % ModulePlan::workspace_alignment) %
      ModulePlan::workspace_alignment;
  std::vector<EmulationReport> reports;
  plan_.run(bound, tensors, scalars, reinterpret_cast<std::byte*>(memory.data()) + past,
            [&](std::size_t kernel, std::span<const TensorView> its_tensors,
                std::span<const ScalarValue> its_scalars) {
              ParameterBlock block;
              const LaunchPlan& launch = launches_[kernel];
              const LaunchPlan::Bound its = launch.bind(its_tensors, its_scalars, block);
              reports.emplace_back();
              if (its.grid.count() == 0) return;
              const std::span<const std::byte> parameters(
                  block.bytes, static_cast<std::size_t>(launch.source().parameter_bytes));
              reports.back() = kernels_[kernel].run(parameters, its.grid, its_tensors);
            });
  return reports;
}

}  // namespace flashcore
