// What Python sees of a run in the emulator while it lasts, and how it ends one.
#pragma once

#include <pybind11/pybind11.h>

namespace flashcore::python {

/// `make()` gives the object that is told of a run which lasts: show(done, all, seconds), close().
void set_emulation_observer(pybind11::object make);

/// Of one run, in the thread that waits for it, which does not hold the GIL.
class EmulationWatch {
 public:
  EmulationWatch() = default;
  ~EmulationWatch();
  EmulationWatch(const EmulationWatch&) = delete;
  EmulationWatch& operator=(const EmulationWatch&) = delete;

  /// Throws what a signal's handler raises (KeyboardInterrupt), or the observer.
  void look(int done, int all, double seconds);

 private:
  PyObject* observer_ = nullptr;
};

}  // namespace flashcore::python
