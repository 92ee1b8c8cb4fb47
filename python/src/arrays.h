// Python arrays as views for one call: through the C functions of DLPack where the framework has
// them, as NumPy arrays, through __dlpack__, or through __cuda_array_interface__.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <pybind11/pybind11.h>

#include "python/src/dlpack.h"
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

  /// Whether it is an array of a framework with DLPack's C functions, and torch, where it is
  /// torch's, wants no more done with a call than a launch.
  [[nodiscard]] static bool is_plain(pybind11::handle array);
  /// Reads one through the C functions. False where there are none, where its gradient would be
  /// recorded, and where `read` has something to say about it.
  bool read_plainly(pybind11::handle array, TensorView& view);
  /// The same of an array that nobody has done anything with yet.
  bool read_new(pybind11::handle array, TensorView& view);

  /// What torch.empty_like gives, of plain tensors, and one of f32 numbers on the same device; null of
  /// other arrays. And a tensor of so many bytes, where there can be one.
  static pybind11::object empty_like(pybind11::handle array);
  static pybind11::object floats_beside(pybind11::handle array,
                                        std::span<const std::int64_t> shape);
  static bool makes_bytes(pybind11::handle array);
  static pybind11::object bytes_beside(pybind11::handle array, std::size_t bytes);

  /// Throws DeviceError if the caller's choice is no stream.
  void check_stream() const;

  /// The stream on which to work on the arrays read so far; it waits for those that their
  /// producers named.
  CudaStream stream();

 private:
  TensorView read_capsule(pybind11::handle array, const char* name, bool output);
  /// Through these functions; false where there are none, or they refuse.
  bool read_by(const dlpack::ExchangeApi* api, pybind11::handle array, TensorView& view);
  bool is_recording(PyObject* ask);
  void note(pybind11::handle array, const TensorView& view);
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
