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
    const bool tiled =
        axis.kind == ir::AxisKind::tiles || axis.kind == ir::AxisKind::parallel_tiles;
    if (tiled && !axis.alias_of) {
      names.push_back(axis.name);
    }
  }
  return names;
}

/// The outputs that a launch adds to, or notes turns in.
std::vector<std::string> outputs_added_to(const Program& program) {
  const ir::Function& f = program.function();
  std::vector<std::string> names;
  for (std::size_t i = 0; i < f.tensors.size(); ++i)
    if (f.tensors[i].output && f.adds_to(ir::TensorId(i))) names.push_back(f.tensors[i].name);
  return names;
}

using Places = std::vector<std::pair<std::string, int>>;

/// The program of a text whose ops were written elsewhere, at these places in their order.
Program placed(const std::string& text, const Places& places) {
  ir::Function f = Program::parse(text).function();
  std::size_t at = 0;
  ir::for_each_op(f, f.body, [&](ir::Op& op, ir::BlockId) {
    if (at < places.size()) op.where = Location(places[at].first, places[at].second);
    ++at;
  });
  return Program(std::move(f));
}

}  // namespace

void bind_programs(py::module_& m) {
  py::class_<Program>(m, "Program")
      .def(py::init(&placed), py::arg("text"), py::arg("places") = Places())
      .def_property_readonly("name", &Program::name)
      .def_property_readonly("text", &Program::text)
      .def(
          "with_probes",
          [](const Program& program, const std::vector<std::string>& names) {
            return with_probes(program, names);
          },
          py::arg("names"))
      .def_property_readonly("tiled_axes", &tiled_axes)
      .def_property_readonly("added_to", &outputs_added_to);
}

}  // namespace flashcore::python
