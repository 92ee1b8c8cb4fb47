// The memory between the kernels of a call from Python: torch's or the arrays' framework's.
#pragma once

#include <cstddef>
#include <optional>

#include <pybind11/pybind11.h>

#include "python/src/kept_workspace.h"
#include "runtime/workspace.h"

namespace flashcore::python {

/// Made and destroyed with the GIL, asked without it.
class CallWorkspace final : public Workspace {
 public:
  /// Beside `like`, the call's first array; the caller's `stream` is None where the launch goes to the
  /// framework's own, `launched_on`. `allocate(like, bytes, stream)` makes an array of bytes for
  /// work on `stream`, where the caller names one or `like` is no tensor of torch's own; where it
  /// returns None, the driver allocates the memory.
  CallWorkspace(pybind11::handle like, int device, pybind11::handle stream, CudaStream launched_on,
                const pybind11::function& allocate)
      : like_(like),
        device_(device),
        stream_(stream),
        launched_on_(launched_on),
        allocate_(allocate) {}

  void* reserve(std::size_t bytes) override;

 private:
  const pybind11::handle like_;
  const int device_;
  const pybind11::handle stream_;
  const CudaStream launched_on_;
  const pybind11::function& allocate_;
  std::optional<KeptWorkspace> kept_;
  std::optional<StreamWorkspace> of_driver_;
  pybind11::object array_;
};

}  // namespace flashcore::python
