#include <pybind11/stl.h>

#include "dsl/module.h"
#include "python/src/jit_module.h"
#include "python/src/module.h"
#include "python/src/signature.h"

namespace flashcore::python {
namespace {

namespace py = pybind11;

Module make_module(const std::string& name, const std::vector<const Program*>& kernels,
                   const std::vector<std::string>& workspaces,
                   const std::vector<std::pair<std::string, std::string>>& numbers,
                   const std::vector<std::string>& several_writers) {
  ModuleBuilder builder(name);
  for (const auto& [number, text] : numbers) builder.number(number, text);
  for (const std::string& workspace : workspaces) builder.workspace(workspace);
  for (const std::string& tensor : several_writers) builder.several_writers(tensor);
  for (const Program* kernel : kernels) builder.kernel(*kernel);
  return builder.finish();
}

std::vector<std::string> names_of(std::span<const std::string> tensors) {
  return {tensors.begin(), tensors.end()};
}

std::vector<std::string> outputs_added_to(const Module& module) {
  std::vector<std::string> names;
  for (const ir::Tensor& tensor : module.tensors())
    if (module.adds_to(tensor.name)) names.push_back(tensor.name);
  return names;
}

}  // namespace

void bind_modules(py::module_& m) {
  py::class_<Module>(m, "Module")
      .def(py::init(&make_module), py::arg("name"), py::arg("kernels"), py::arg("workspaces"),
           py::arg("numbers"), py::arg("several_writers"))
      .def_static("parse", &Module::parse, py::arg("text"))
      .def_property_readonly("name", &Module::name)
      .def_property_readonly("text", &Module::text)
      .def_property_readonly("kernels",
                             [](const Module& module) {
                               return std::vector<Program>(module.kernels().begin(),
                                                           module.kernels().end());
                             })
      .def_property_readonly("workspaces",
                             [](const Module& module) { return names_of(module.workspaces()); })
      .def_property_readonly(
          "several_writers",
          [](const Module& module) { return names_of(module.several_writers()); })
      .def_property_readonly("added_to", &outputs_added_to)
      .def_property_readonly("numbers", [](const Module& module) {
        py::dict numbers;
        for (const LaunchNumber& number : module.numbers())
          numbers[py::str(number.name)] = number.text;
        return numbers;
      });
  py::class_<JitModule>(m, "ModuleKernels")
      .def(py::init<const Module&, const std::vector<std::shared_ptr<JitKernel>>&>(),
           py::arg("module"), py::arg("kernels"))
      .def("launch", &JitModule::launch, py::arg("arrays"), py::arg("scalars"), py::arg("stream"),
           py::arg("allocate"))
      .def("numbers", &JitModule::numbers, py::arg("arrays"), py::arg("scalars"))
      .def_property_readonly("tensors",
                             [](const JitModule& j) { return tensors_of(j.signature()); })
      .def_property_readonly("scalars",
                             [](const JitModule& j) { return scalars_of(j.signature()); })
      .def_property_readonly("name", [](const JitModule& j) { return j.signature().name; });
}

}  // namespace flashcore::python
