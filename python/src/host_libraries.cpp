// Programs in C++ that are compiled when they are loaded.
#include <pybind11/stl.h>

#include "python/src/module.h"
#include "runtime/emulator/host_library.h"

namespace flashcore::python {

namespace py = pybind11;

void bind_host_libraries(py::module_& m) {
  m.def(
      "build_host_library",
      [](const std::string& source, std::vector<std::string> includes,
         std::vector<std::string> libraries) {
        std::string library;
        {
          const py::gil_scoped_release release;
          library = build_host_library({source, std::move(includes), std::move(libraries)});
        }
        return py::bytes(library);
      },
      py::arg("source"), py::arg("includes"), py::arg("libraries"));
}

}  // namespace flashcore::python
