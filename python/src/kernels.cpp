#include <pybind11/stl.h>

#include "dsl/json.h"
#include "python/src/jit_kernel.h"
#include "python/src/launch_arguments.h"
#include "python/src/module.h"
#include "python/src/signature.h"
#include "runtime/cuda/device.h"

namespace flashcore::python {
namespace {

namespace py = pybind11;

/// What the caller fills probes with before a launch, by the tensor's name.
py::dict unwritten_of(const JitKernel& kernel) {
  py::dict values;
  for (const TensorArgument& tensor : kernel.source().tensors) {
    if (tensor.unwritten) values[py::str(tensor.name)] = *tensor.unwritten;
  }
  return values;
}

py::dict resources_of(const Resources& resources) {
  py::dict values;
  values["registers"] = resources.registers;
  values["stack_bytes"] = resources.stack_bytes;
  values["spill_store_bytes"] = resources.spill_store_bytes;
  values["spill_load_bytes"] = resources.spill_load_bytes;
  values["static_shared_bytes"] = resources.static_shared_bytes;
  values["dynamic_shared_bytes"] = resources.dynamic_shared_bytes;
  values["barriers"] = resources.barriers;
  return values;
}

// Compiling takes long and may call a Python hook of the log: never with the GIL.
std::shared_ptr<const CompiledKernel> compiled(JitKernel& kernel) {
  const py::gil_scoped_release release;
  return kernel.compiled();
}

}  // namespace

void bind_kernels(py::module_& m) {
  py::class_<JitKernel, std::shared_ptr<JitKernel>>(m, "Kernel")
      .def(py::init<const Program&, const std::string&, const std::string&>(), py::arg("program"),
           py::arg("schedule"), py::arg("target"), py::call_guard<py::gil_scoped_release>())
      .def("explain", &JitKernel::explain, py::arg("names"))
      .def(
          "launch",
          [](JitKernel& kernel, const py::tuple& arrays, const py::tuple& scalars,
             const py::object& stream) {
            kernel.launch(LaunchArguments(kernel.source(), arrays, scalars, stream));
          },
          py::arg("arrays"), py::arg("scalars"), py::arg("stream"))
      .def("prepare", &JitKernel::prepare, py::arg("device"),
           py::call_guard<py::gil_scoped_release>())
      .def(
          "prepare_flat",
          [](JitKernel& kernel, int device) {
            const py::gil_scoped_release release;
            kernel.prepare_flat(device);
          },
          py::arg("device"))
      .def(
          "entry",
          [](JitKernel& kernel, bool of_flat) {
            std::string file;
            {
              const py::gil_scoped_release release;
              file = kernel.entry(of_flat);
            }
            return py::bytes(file);
          },
          py::arg("of_flat"))
      .def("request", &JitKernel::request, py::arg("of_flat"),
           py::call_guard<py::gil_scoped_release>())
      .def("compile", [](JitKernel& kernel) { (void)compiled(kernel); })
      .def("set_safer", &JitKernel::set_safer, py::arg("schedules"),
           py::call_guard<py::gil_scoped_release>())
      .def("wait_until_optimised", &JitKernel::wait_until_optimised,
           py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("is_optimised",
                             [](JitKernel& k) {
                               const py::gil_scoped_release release;
                               return k.is_optimised();
                             })
      .def("ir_after", &JitKernel::ir_after, py::arg("pass_name"))
      .def_property_readonly("tensors", [](const JitKernel& k) { return tensors_of(k.source()); })
      .def_property_readonly("unwritten", &unwritten_of)
      .def_property_readonly("scalars", [](const JitKernel& k) { return scalars_of(k.source()); })
      .def_property_readonly("name", [](const JitKernel& k) { return k.source().name; })
      .def_property_readonly("source", &JitKernel::text)
      .def_property_readonly("schedule", [](const JitKernel& k) { return to_json(k.schedule()); })
      .def_property_readonly("threads", [](const JitKernel& k) { return k.source().threads; })
      .def_property_readonly("generate_ms", &JitKernel::generate_ms)
      .def_property_readonly("cubin", [](JitKernel& k) { return py::bytes(compiled(k)->cubin()); })
      .def_property_readonly("ptx",
                             [](JitKernel& k) {
                               const auto code = compiled(k);
                               const py::gil_scoped_release release;
                               return code->ptx();
                             })
      .def_property_readonly("resources",
                             [](JitKernel& k) { return resources_of(compiled(k)->resources()); })
      .def_property_readonly("from_cache", [](JitKernel& k) { return compiled(k)->from_cache(); })
      .def_property_readonly("compile_ms", [](JitKernel& k) { return compiled(k)->compile_ms(); });
}

}  // namespace flashcore::python
