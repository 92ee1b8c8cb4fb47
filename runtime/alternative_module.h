// A module that computes what a program does (dsl/schedule_choice.h), launched with the arguments of
// the program.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "dsl/program.h"
#include "runtime/launchable_module.h"

namespace flashcore {

/// Thread-safe, as the module is.
class AlternativeModule {
 public:
  /// Throws SpecError where the module takes what the program does not.
  AlternativeModule(LaunchableModule module, const Program& program);

  [[nodiscard]] const LaunchableModule& module() const { return module_; }
  void prepare(int device) { module_.prepare(device); }

  /// As many tensors and scalars as the program has, in its order. Throws as LaunchableModule::launch;
  /// a LayoutError names the program's tensor.
  void launch(std::span<const TensorView> tensors, std::span<const ScalarValue> scalars,
              CudaStream stream, Workspace& workspace) const;

 private:
  LaunchableModule module_;
  std::vector<std::size_t> tensors_, scalars_;  ///< which of the program's each of the module's is
};

}  // namespace flashcore
