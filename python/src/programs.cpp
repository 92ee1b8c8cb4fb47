#include <pybind11/stl.h>

#include "dsl/probes.h"
#include "dsl/program.h"
#include "python/src/module.h"

namespace flashcore::python {
namespace {

namespace py = pybind11;

std::vector<std::string> tiled_axes(const Program& program) {
  std::vector<std::string> names;
  for (const ir::Axis& axis : program.function().axes) {
    if (axis.kind == ir::AxisKind::tiles || axis.kind == ir::AxisKind::parallel_tiles) {
      names.push_back(axis.name);
    }
  }
  return names;
}

}  // namespace

void bind_programs(py::module_& m) {
  py::class_<Program>(m, "Program")
      .def(py::init([](const std::string& text) { return Program::parse(text); }), py::arg("text"))
      .def_property_readonly("name", &Program::name)
      .def_property_readonly("text", &Program::text)
      .def(
          "with_probes",
          [](const Program& program, const std::vector<std::string>& names) {
            return with_probes(program, names);
          },
          py::arg("names"))
      .def_property_readonly("tiled_axes", &tiled_axes);
}

}  // namespace flashcore::python
