// A module (dsl/module.h) whose kernels run one after another on a GPU.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dsl/module.h"
#include "dsl/schedule.h"
#include "dsl/target.h"
#include "runtime/kernel.h"
#include "runtime/module_plan.h"

namespace flashcore {

/// Memory of the GPU that a launch may write until the work behind it on the stream is done.
struct WorkspaceMemory {
  void* data = nullptr;  ///< at a multiple of ModulePlan::workspace_alignment
  std::size_t bytes = 0;
};

/// Thread-safe, as its kernels are.
class LoadedModule {
 public:
  /// `kernels` are those of the module, in its order. Touches no GPU yet.
  LoadedModule(Module module, std::span<const std::shared_ptr<const CompiledKernel>> kernels);

  [[nodiscard]] const ModulePlan& plan() const { return plan_; }
  [[nodiscard]] const LoadedKernel& kernel(std::size_t which) const { return *kernels_[which]; }

  /// Loads the code of every kernel for `device`.
  void prepare(int device);

  /// How much memory a launch with such arguments wants: the same for equal shapes and scalars.
  [[nodiscard]] std::size_t workspace_bytes(std::span<const TensorView> tensors,
                                            std::span<const ScalarValue> scalars) const;

  /// Tensors and scalars in the order of plan().signature(). Outputs of which plan().module() says
  /// that a launch adds to them hold what it adds to. Launches every kernel on the stream;
  /// nothing is launched where an argument is refused or the workspace is too small (DeviceError
  /// with the bytes that are wanted). Can be captured into a graph, which then holds the workspace.
  void launch(std::span<const TensorView> tensors, std::span<const ScalarValue> scalars,
              WorkspaceMemory workspace, CudaStream stream = nullptr);

 private:
  ModulePlan plan_;
  std::vector<std::unique_ptr<LoadedKernel>> kernels_;
};

/// The kernels of a module, each under the first of its schedules that fits (build_first_fitting).
std::vector<std::shared_ptr<const CompiledKernel>> build_first_fitting(
    const Module& module, std::span<const std::vector<Schedule>> schedules, const Target& target);

}  // namespace flashcore
