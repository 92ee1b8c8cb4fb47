// Python arrays as views for one call: through the C functions of DLPack where the framework has
// them, as NumPy arrays, through __dlpack__, or through __cuda_array_interface__.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <pybind11/pybind11.h>

#include "runtime/cuda/driver.h"
#include "runtime/tensor.h"

namespace flashcore::python {

/// Borrows arrays until it dies. Needs the GIL.
class ArrayReader {
 public:
  /// `stream` is the caller's choice, or None for the stream that the arrays' framework works on.
  explicit ArrayReader(pybind11::handle stream) : given_stream_(stream) {}
  ArrayReader(const ArrayReader&) = delete;
  ArrayReader& operator=(const ArrayReader&) = delete;

  /// Throws SpecError for what is no array, DeviceError for one of a kind that kernels do not take,
  /// LayoutError for one of which a copy would do.
  /// `name` is what messages call it, `at` which of the launch's tensors it is.
  TensorView read(pybind11::handle array, const char* name, int at, bool output);

  /// Throws DeviceError if the caller's choice is no stream.
  void check_stream() const;

  /// The stream on which to work on the arrays read so far; it waits for those that their
  /// producers named.
  CudaStream stream();

 private:
  TensorView read_capsule(pybind11::handle array, const char* name, bool output);
  bool is_recording(PyObject* ask);
  CudaStream choose_stream();
  [[nodiscard]] pybind11::object exporter_stream(pybind11::handle array) const;

  pybind11::handle given_stream_;
  pybind11::handle first_gpu_array_;
  int device_ = cpu_device;
  std::optional<bool> is_recording_;  ///< whether torch records gradients
  std::vector<pybind11::object> owners_;
  std::vector<CudaStream> producers_;  ///< streams of arrays' __cuda_array_interface__
};

/// The handle of a stream that a caller gives, of any framework. Throws DeviceError if it is none.
std::uintptr_t stream_handle(pybind11::handle stream);

}  // namespace flashcore::python
