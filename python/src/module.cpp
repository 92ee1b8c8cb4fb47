#include "python/src/module.h"

#include "python/src/quick_callable.h"

PYBIND11_MODULE(_core, m) {
  m.attr("__version__") = FLASHCORE_VERSION;
  m.doc() = "The C++ side of flashcore. Private: use the package.";
  flashcore::python::bind_errors(m);
  flashcore::python::bind_expressions(m);
  flashcore::python::bind_specs(m);
  flashcore::python::bind_cost_model(m);
  flashcore::python::bind_programs(m);
  flashcore::python::bind_kernels(m);
  flashcore::python::bind_modules(m);
  flashcore::python::bind_dispatch(m);
  flashcore::python::bind_quick_callable(m);
  flashcore::python::bind_bundles(m);
  flashcore::python::bind_host_libraries(m);
  flashcore::python::bind_remote_store(m);
  flashcore::python::bind_process(m);
  flashcore::python::bind_inspection(m);
}
