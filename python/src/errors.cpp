// C++ errors become the Python exceptions of the same names, part by part.
#include "dsl/error.h"
#include "python/src/module.h"
#include "runtime/launch_errors.h"

namespace flashcore::python {
namespace {

namespace py = pybind11;

const char* python_name(const Error& error) {
  if (dynamic_cast<const SpecError*>(&error)) return "SpecError";
  if (dynamic_cast<const ScheduleError*>(&error)) return "ScheduleError";
  if (dynamic_cast<const CacheMissError*>(&error)) return "CacheMissError";
  if (dynamic_cast<const CompileError*>(&error)) return "CompileError";
  if (dynamic_cast<const CacheError*>(&error)) return "CacheError";
  if (dynamic_cast<const LayoutError*>(&error)) return "LayoutError";
  if (dynamic_cast<const DeviceError*>(&error)) return "DeviceError";
  return "InternalError";  // the emulator's too: only a mistake of code generation makes one
}

}  // namespace

void bind_errors(py::module_&) {
  py::register_local_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const Error& error) {
      const Complaint& c = error.complaint();
      const py::object type = py::module_::import("flashcore.errors").attr(python_name(error));
      const py::object raised = type(c.what, c.why, c.fix, c.where.file, c.where.line);
      if (const auto* layout = dynamic_cast<const LayoutError*>(&error)) {
        raised.attr("tensor") = layout->tensor();
      }
      PyErr_SetObject(type.ptr(), raised.ptr());
    }
  });
}

}  // namespace flashcore::python
