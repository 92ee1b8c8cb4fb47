// A module (dsl/module.h) whose kernels can be launched, however their code came about.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "dsl/module.h"
#include "runtime/launchable.h"
#include "runtime/module_plan.h"
#include "runtime/workspace.h"

namespace flashcore {

/// Thread-safe, as its kernels are.
class LaunchableModule {
 public:
  using Kernel = std::shared_ptr<Launchable>;

  /// `kernels` are those of the module, in its order.
  LaunchableModule(Module module, std::vector<Kernel> kernels);

  [[nodiscard]] const ModulePlan& plan() const { return plan_; }
  [[nodiscard]] const std::vector<Kernel>& kernels() const { return kernels_; }

  /// Loads the code of every kernel for a GPU.
  void prepare(int device);

  /// What a launch with these arguments computes in front of its kernels. Throws as ModulePlan::bind.
  [[nodiscard]] ModulePlan::Bound bind(std::span<const TensorView> tensors,
                                       std::span<const ScalarValue> scalars) const;
  /// Tensors and scalars in the order of plan().signature(). The workspace is asked for memory if the
  /// module has any to place. Throws as bind before anything is launched, and as its kernels.
  void launch(std::span<const TensorView> tensors, std::span<const ScalarValue> scalars,
              CudaStream stream, Workspace& workspace) const;

 private:
  std::vector<Kernel> kernels_;
  ModulePlan plan_;
};

}  // namespace flashcore
