// One function for each part of the module. They bind and convert; what they bind decides.
#pragma once

#include <pybind11/pybind11.h>

namespace flashcore::python {

void bind_errors(pybind11::module_& m);
void bind_expressions(pybind11::module_& m);
void bind_specs(pybind11::module_& m);
void bind_cost_model(pybind11::module_& m);
void bind_programs(pybind11::module_& m);
void bind_kernels(pybind11::module_& m);
void bind_modules(pybind11::module_& m);
void bind_dispatch(pybind11::module_& m);
void bind_bundles(pybind11::module_& m);
void bind_host_libraries(pybind11::module_& m);
void bind_remote_store(pybind11::module_& m);
void bind_process(pybind11::module_& m);
void bind_inspection(pybind11::module_& m);

}  // namespace flashcore::python
