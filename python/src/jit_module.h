// A module as Python holds it: its kernels, and what one launch of all of them takes.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <pybind11/pybind11.h>

#include "dsl/module.h"
#include "python/src/jit_kernel.h"
#include "runtime/module_plan.h"

namespace flashcore::python {

class LaunchArguments;

class JitModule {
 public:
  /// `kernels` are the module's, objects of JitKernel in its order.
  JitModule(const Module& module, std::vector<pybind11::object> kernels);

  [[nodiscard]] const KernelSource& signature() const { return plan_.signature(); }

  /// Runs all kernels: on the GPU of the arrays, or in the emulator where they lie in CPU memory. If
  /// the module has workspaces, `allocate(bytes)` has to return an array beside the others, which is
  /// let go of once the launches are queued. Needs the GIL, and releases it to launch.
  void launch(const pybind11::tuple& arrays, const pybind11::tuple& scalars,
              pybind11::handle stream, const pybind11::function& allocate);

  /// The same of views in the module's order, on a GPU. `allocate(bytes)` gives an array and its
  /// address, of memory that is aligned for workspaces.
  template <class Allocate>
  void launch_views(std::span<const TensorView> tensors, std::span<const ScalarValue> scalars,
                    CudaStream stream, const Allocate& allocate) {
    const ModulePlan::Bound bound = bind(tensors, scalars);
    std::pair<pybind11::object, void*> memory;
    if (bound.workspace_bytes > 0) memory = allocate(bound.workspace_bytes);
    run(bound, tensors, scalars, memory.second, stream);
  }

  /// The numbers that a launch with these arguments computes, by name.
  [[nodiscard]] pybind11::dict numbers(const pybind11::tuple& arrays,
                                       const pybind11::tuple& scalars) const;

 private:
  struct Held {
    pybind11::object owner;
    JitKernel* kernel;
  };

  [[nodiscard]] ModulePlan::Bound bind(std::span<const TensorView> tensors,
                                       std::span<const ScalarValue> scalars) const;
  /// Releases the GIL.
  void run(const ModulePlan::Bound& bound, std::span<const TensorView> tensors,
           std::span<const ScalarValue> scalars, void* workspace, CudaStream stream);

  std::vector<Held> kernels_;
  ModulePlan plan_;
};

}  // namespace flashcore::python
