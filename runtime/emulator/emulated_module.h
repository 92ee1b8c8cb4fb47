// A module (dsl/module.h) without a GPU: its kernels in the emulator, one after another.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "runtime/emulator/emulator.h"
#include "runtime/module_plan.h"

namespace flashcore {

class EmulatedModule {
 public:
  /// `sources` are the module's kernels, generated, in its order. Throws CompileError when there is
  /// no compiler or it refuses one.
  static EmulatedModule build(Module module,
                              std::span<const std::shared_ptr<const KernelSource>> sources,
                              const HostCompileOptions& options = {});

  [[nodiscard]] const ModulePlan& plan() const { return plan_; }

  /// Tensors, in CPU memory, and scalars in the order of plan().signature(). Workspaces start as
  /// NaN. Throws what the launch refuses, and EmulatorError.
  [[nodiscard]] std::vector<EmulationReport> run(
      std::span<const TensorView> tensors, std::span<const ScalarValue> scalars,
      int multiprocessors = emulated_multiprocessors) const;

 private:
  EmulatedModule(ModulePlan plan, std::vector<LaunchPlan> launches,
                 std::vector<EmulatedKernel> kernels);

  ModulePlan plan_;
  std::vector<LaunchPlan> launches_;
  std::vector<EmulatedKernel> kernels_;
};

}  // namespace flashcore
