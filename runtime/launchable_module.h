// A module (dsl/module.h) whose kernels can be launched one after another, however their code came about.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "dsl/module.h"
#include "dsl/schedule.h"
#include "dsl/target.h"
#include "runtime/kernel.h"
#include "runtime/launchable.h"
#include "runtime/module_plan.h"
#include "runtime/workspace.h"

namespace flashcore {

/// Thread-safe, as its kernels are.
class LaunchableModule {
 public:
  using Kernel = std::shared_ptr<Launchable>;

  /// `kernels` are those of the module, in its order. Touches no GPU.
  LaunchableModule(Module module, std::vector<Kernel> kernels);
  LaunchableModule(Module module, std::span<const std::shared_ptr<const CompiledKernel>> kernels);

  [[nodiscard]] const ModulePlan& plan() const { return plan_; }
  [[nodiscard]] const std::vector<Kernel>& kernels() const { return kernels_; }

  /// Loads the code of every kernel for a GPU.
  void prepare(int device);

  /// What a launch with these arguments computes in front of its kernels. Throws as ModulePlan::bind.
  [[nodiscard]] ModulePlan::Bound bind(std::span<const TensorView> tensors,
                                       std::span<const ScalarValue> scalars) const;
  /// Tensors and scalars in the order of plan().signature(). Outputs of which plan().module() says
  /// that a launch adds to them hold what it adds to. The workspace is asked for memory if the module
  /// has any to place. Throws as bind and the workspace before anything is launched, and as its
  /// kernels. Can be captured into a graph.
  void launch(std::span<const TensorView> tensors, std::span<const ScalarValue> scalars,
              CudaStream stream, Workspace& workspace) const;

 private:
  std::vector<Kernel> kernels_;
  ModulePlan plan_;
};

/// The kernels of a module, each under the first of its schedules that fits (build_first_fitting), built
/// beside each other. Hooks are called by the threads that build.
LaunchableModule build_first_fitting(const Module& module,
                                     std::span<const std::vector<Schedule>> schedules,
                                     const Target& target);

}  // namespace flashcore
