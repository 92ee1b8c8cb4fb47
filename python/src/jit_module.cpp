#include "python/src/jit_module.h"

#include "python/src/call_workspace.h"
#include "python/src/launch_arguments.h"

namespace flashcore::python {

namespace py = pybind11;

void JitModule::launch(const py::tuple& arrays, const py::tuple& scalars, py::handle stream,
                       const py::function& allocate) const {
  const LaunchArguments arguments(signature(), arrays, scalars, stream);
  const auto tensors = arguments.tensors();
  CallWorkspace workspace(tensors.empty() ? py::handle(Py_None) : py::handle(arrays[0]),
                          tensors.empty() ? cpu_device : tensors[0].device, stream,
                          arguments.stream(), allocate);
  const py::gil_scoped_release release;
  module_.launch(tensors, arguments.scalars(), arguments.stream(), workspace);
}

py::dict JitModule::numbers(const py::tuple& arrays, const py::tuple& scalars) const {
  const LaunchArguments arguments(signature(), arrays, scalars, py::none());
  const ModulePlan::Bound bound = module_.bind(arguments.tensors(), arguments.scalars());
  py::dict values;
  const std::span<const LaunchNumber> numbers = module_.plan().module().numbers();
  for (std::size_t i = 0; i < numbers.size(); ++i)
    values[py::str(numbers[i].name)] = module_.plan().number(bound, i);
  return values;
}

}  // namespace flashcore::python
