#include "python/src/emulation_watch.h"

#include <utility>

namespace flashcore::python {
namespace {

namespace py = pybind11;

// What is over before is not worth a word.
constexpr double quiet_seconds = 0.5;

PyObject* make_observer = nullptr;

}  // namespace

void set_emulation_observer(py::object make) { Py_XSETREF(make_observer, make.release().ptr()); }

EmulationWatch::~EmulationWatch() {
  if (observer_ == nullptr) return;
  const py::gil_scoped_acquire gil;
  const py::error_scope around;  // an exception may be on its way
  try {
    py::reinterpret_steal<py::object>(std::exchange(observer_, nullptr)).attr("close")();
  } catch (py::error_already_set& error) {
    error.discard_as_unraisable("flashcore: the progress of a run in the emulator");
  }
}

void EmulationWatch::look(int done, int all, double seconds) {
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  if (seconds < quiet_seconds || make_observer == nullptr) return;
  if (observer_ == nullptr) observer_ = py::handle(make_observer)().release().ptr();
  py::handle(observer_).attr("show")(done, all, seconds);
}

}  // namespace flashcore::python
