// A module as Python holds it: its kernels, and what one launch of all of them takes.
#pragma once

#include <memory>
#include <vector>

#include <pybind11/pybind11.h>

#include "dsl/module.h"
#include "python/src/jit_kernel.h"
#include "runtime/launchable_module.h"

namespace flashcore::python {

class JitModule {
 public:
  /// `kernels` are the module's, in its order.
  JitModule(const Module& module, const std::vector<std::shared_ptr<JitKernel>>& kernels)
      : module_(module, {kernels.begin(), kernels.end()}) {}

  [[nodiscard]] const KernelSource& signature() const { return module_.plan().signature(); }

  /// Runs all kernels: on the GPU of the arrays, or in the emulator where they lie in CPU memory. If
  /// the module has workspaces, `allocate` is as CallWorkspace's. Needs the GIL, and releases it to
  /// launch.
  void launch(const pybind11::tuple& arrays, const pybind11::tuple& scalars,
              pybind11::handle stream, const pybind11::function& allocate) const;

  /// The numbers that a launch with these arguments computes, by name.
  [[nodiscard]] pybind11::dict numbers(const pybind11::tuple& arrays,
                                       const pybind11::tuple& scalars) const;

 private:
  LaunchableModule module_;
};

}  // namespace flashcore::python
