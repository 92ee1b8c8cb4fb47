#include "python/src/cuda_array_interface.h"

#include <array>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "python/src/array_checks.h"
#include "runtime/cuda/device.h"

namespace flashcore::python {
namespace {

namespace py = pybind11;

// NumPy has no name for bfloat16: ml_dtypes' arrays say two bytes of anything, and the dtype tells.
bool is_bfloat16(py::handle array) {
  const py::object dtype = py::getattr(array, "dtype", py::none());
  return py::str(py::getattr(dtype, "name", dtype)).cast<std::string>().ends_with("bfloat16");
}

DType dtype_of(py::handle array, const char* name, const std::string& code) {
  struct Known {
    std::string_view code;
    DType dtype;
  };
  static constexpr std::array<Known, 9> known{{{"<f2", DType::f16},
                                               {"<f4", DType::f32},
                                               {"<f8", DType::f64},
                                               {"<i4", DType::i32},
                                               {"<i8", DType::i64},
                                               {"<i2", DType::i16},
                                               {"|i1", DType::i8},
                                               {"|u1", DType::u8},
                                               {"|b1", DType::i1}}};
  for (const Known& one : known) {
    if (code == one.code) return one.dtype;
  }
  if (code.ends_with("V2") && is_bfloat16(array)) return DType::bf16;
  refuse_dtype(name, code);
}

py::object entry(const py::dict& interface, const char* key) {
  return interface.contains(key) ? py::object(interface[key]) : py::none();
}

std::int64_t number_at(const py::tuple& values, int at) {
  return values[static_cast<std::size_t>(at)].cast<std::int64_t>();
}

std::optional<CudaStream> stream_of(const char* name, const py::object& stream) {
  if (stream.is_none()) return std::nullopt;
  const auto handle = stream.cast<std::uintptr_t>();
  if (handle == 0) {
    refuse_array(name,
                 "its __cuda_array_interface__ says stream 0, which the interface does not define",
                 "1 for the default stream, 2 for the thread's own, a handle, or None");
  }
  // 1 is the default stream's other name; the driver knows 2 as well.
  return reinterpret_cast<CudaStream>(handle == 1 ? 0 : handle);
}

}  // namespace

CudaInterfaceArray read_cuda_interface(py::handle array, const char* name, int at, bool output) {
  const py::dict interface = array.attr("__cuda_array_interface__");
  const py::tuple data = interface["data"], shape = interface["shape"];
  const py::object strides = entry(interface, "strides");
  if (!entry(interface, "mask").is_none()) {
    refuse_array(name, "it is a masked array", "an array without a mask of its own");
  }
  check_rank(name, static_cast<std::int64_t>(shape.size()));
  check_writeable(name, output, data[1].cast<bool>());

  const auto address = data[0].cast<std::uintptr_t>();
  TensorView view{.data = reinterpret_cast<void*>(address), .rank = static_cast<int>(shape.size())};
  view.dtype = dtype_of(array, name, interface["typestr"].cast<std::string>());
  view.device = device_of(Driver::get(), address);
  std::int64_t dense = 1;
  for (int dim = view.rank - 1; dim >= 0; --dim) {
    view.shape[dim] = number_at(shape, dim);
    view.strides[dim] = dense;
    dense *= view.shape[dim];
  }
  if (!strides.is_none()) {
    for (int dim = 0; dim < view.rank; ++dim) {
      view.strides[dim] = in_elements(name, at, number_at(strides, dim), view.dtype);
    }
  }
  return {.view = view, .stream = stream_of(name, entry(interface, "stream"))};
}

}  // namespace flashcore::python
