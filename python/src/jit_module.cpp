#include "python/src/jit_module.h"

#include "python/src/arrays.h"
#include "python/src/launch_arguments.h"
#include "runtime/cuda/device.h"

namespace flashcore::python {
namespace {

namespace py = pybind11;

std::vector<std::shared_ptr<const KernelSource>> sources_of(
    const std::vector<py::object>& kernels) {
  std::vector<std::shared_ptr<const KernelSource>> sources;
  for (const py::object& kernel : kernels)
    sources.push_back(std::make_shared<const KernelSource>(kernel.cast<JitKernel&>().source()));
  return sources;
}

}  // namespace

JitModule::JitModule(const Module& module, std::vector<py::object> kernels)
    : plan_(module, sources_of(kernels)) {
  for (py::object& kernel : kernels) {
    auto* const held = kernel.cast<JitKernel*>();
    kernels_.push_back({.owner = std::move(kernel), .kernel = held});
  }
}

ModulePlan::Bound JitModule::bind(std::span<const TensorView> tensors,
                                  std::span<const ScalarValue> scalars) const {
  const bool on_gpu = !tensors.empty() && tensors[0].device >= 0;
  const int multiprocessors =
      on_gpu ? multiprocessors_of(Driver::get(), tensors[0].device) : emulated_multiprocessors;
  return plan_.bind(tensors, scalars, multiprocessors);
}

void JitModule::run(const ModulePlan::Bound& bound, std::span<const TensorView> tensors,
                    std::span<const ScalarValue> scalars, void* workspace, CudaStream stream) {
  const py::gil_scoped_release release;
  plan_.run(bound, tensors, scalars, workspace,
            [&](std::size_t kernel, std::span<const TensorView> its_tensors,
                std::span<const ScalarValue> its_scalars) {
              kernels_[kernel].kernel->launch(its_tensors, its_scalars, stream);
            });
}

void JitModule::launch(const py::tuple& arrays, const py::tuple& scalars, py::handle stream,
                       const py::function& allocate) {
  const LaunchArguments arguments(signature(), arrays, scalars, stream);
  ArrayReader reader(stream);
  launch_views(arguments.tensors(), arguments.scalars(), arguments.stream(),
               [&](std::size_t bytes) {
                 // Frameworks align arrays in CPU memory less than workspaces have to be.
                 constexpr std::size_t step = ModulePlan::workspace_alignment;
                 py::object memory = allocate(bytes + step);
                 const auto address = reinterpret_cast<std::uintptr_t>(
                     reader.read(memory, "workspace", 0, /*output=*/true).data);
                 return std::pair(std::move(memory),
                                  reinterpret_cast<void*>((address + step - 1) / step * step));
               });
}

py::dict JitModule::numbers(const py::tuple& arrays, const py::tuple& scalars) const {
  const LaunchArguments arguments(signature(), arrays, scalars, py::none());
  const ModulePlan::Bound bound = bind(arguments.tensors(), arguments.scalars());
  py::dict values;
  const std::span<const LaunchNumber> numbers = plan_.module().numbers();
  for (std::size_t i = 0; i < numbers.size(); ++i)
    values[py::str(numbers[i].name)] = plan_.number(bound, i);
  return values;
}

}  // namespace flashcore::python
