#include "python/src/arrays.h"

#include <array>
#include <bit>
#include <string>

#include <pybind11/numpy.h>

#include "dsl/error.h"
#include "python/src/array_checks.h"
#include "python/src/cuda_array_interface.h"
#include "python/src/dlpack.h"
#include "runtime/cuda/device.h"

namespace flashcore::python {
namespace {

namespace py = pybind11;

constexpr auto dtypes = static_cast<std::size_t>(DType::i1) + 1;

// What the type of an array offers; looked up once a type.
struct ArrayType {
  PyTypeObject* type = nullptr;
  const dlpack::ExchangeApi* api = nullptr;
  PyObject* is_recording = nullptr;  ///< torch's function: whether gradients are, of a tensor of it
  PyObject* is_neg = nullptr;        ///< torch's method; nobody else negates lazily
  std::array<bool, dtypes> may_be_neg{};  ///< by the dtype, whether the method may say so
  /// Of torch's own two types only, torch's functions: how many modes watch what is computed, and
  /// what makes another tensor; and two of its dtypes.
  PyObject* modes = nullptr;
  PyObject* empty_like = nullptr;
  PyObject* new_empty = nullptr;
  PyObject* byte = nullptr;
  PyObject* float32 = nullptr;
  bool is_special = false;  ///< another type of torch's
};

// What torch negates lazily is the imaginary part of conjugated numbers, so no tensor of a dtype that
// it has no complex numbers of: bfloat16. To ask a tensor takes twice as long as to read it.
bool has_imaginary_parts(const py::object& torch, const char* name) {
  const py::object dtype = py::getattr(torch, name, py::none());
  if (!py::hasattr(dtype, "to_complex")) return true;
  try {
    return dtype.attr("to_complex")().attr("to_real")().is(dtype);
  } catch (const py::error_already_set&) {
    return false;
  }
}

ArrayType describe(py::handle type) {
  ArrayType entry{.type = reinterpret_cast<PyTypeObject*>(type.ptr())};
  const py::dict modules = py::module_::import("sys").attr("modules");
  if (py::hasattr(type, "requires_grad") && modules.contains("torch")) {
    entry.is_recording = py::object(modules["torch"].attr("is_grad_enabled")).release().ptr();
  }
  if (modules.contains("torch")) {
    const py::object torch = modules["torch"], tensor = torch.attr("Tensor");
    if (type.is(tensor) || type.is(torch.attr("nn").attr("Parameter"))) {
      entry.modes = py::object(torch.attr("_C").attr("_len_torch_dispatch_stack")).release().ptr();
      entry.empty_like = py::object(torch.attr("empty_like")).release().ptr();
      entry.new_empty = py::object(type.attr("new_empty")).release().ptr();
      entry.byte = py::object(torch.attr("uint8")).release().ptr();
      entry.float32 = py::object(torch.attr("float32")).release().ptr();
    } else {
      entry.is_special =
          PyType_IsSubtype(entry.type, reinterpret_cast<PyTypeObject*>(tensor.ptr()));
    }
  }
  if (py::hasattr(type, "is_neg") && modules.contains("torch")) {
    entry.is_neg = py::object(type.attr("is_neg")).release().ptr();
    for (const auto& [dtype, name] :
         {std::pair(DType::f16, "float16"), std::pair(DType::bf16, "bfloat16"),
          std::pair(DType::f32, "float32"), std::pair(DType::f64, "float64")})
      entry.may_be_neg[static_cast<std::size_t>(dtype)] =
          has_imaginary_parts(modules["torch"], name);
  }
  if (!py::hasattr(type, "__dlpack_c_exchange_api__")) return entry;
  const py::object capsule = type.attr("__dlpack_c_exchange_api__");
  const auto* api = static_cast<const dlpack::ExchangeApi*>(
      PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  if (api == nullptr) {
    PyErr_Clear();
    return entry;
  }
  while (api != nullptr && api->version.major != 1) api = api->older;
  if (api != nullptr && api->borrow != nullptr) entry.api = api;
  return entry;
}

const ArrayType& type_of(py::handle array) {
  // Types live on: a framework's array type is never unloaded. A full table starts over.
  static std::array<ArrayType, 8> known;
  static std::size_t count = 0;
  PyTypeObject* const type = Py_TYPE(array.ptr());
  for (std::size_t i = 0; i < count; ++i) {
    if (known[i].type == type) return known[i];
  }
  if (count == known.size()) count = 0;
  Py_INCREF(type);
  known[count] = describe(reinterpret_cast<PyObject*>(type));
  return known[count++];
}

DType dtype_of(const dlpack::DataType& type, const char* name) {
  struct Known {
    int code, bits;
    DType dtype;
  };
  static constexpr std::array<Known, 10> known{{{dlpack::bfloat, 16, DType::bf16},
                                                {dlpack::real, 16, DType::f16},
                                                {dlpack::real, 32, DType::f32},
                                                {dlpack::real, 64, DType::f64},
                                                {dlpack::signed_integer, 32, DType::i32},
                                                {dlpack::signed_integer, 64, DType::i64},
                                                {dlpack::signed_integer, 16, DType::i16},
                                                {dlpack::signed_integer, 8, DType::i8},
                                                {dlpack::unsigned_integer, 8, DType::u8},
                                                {dlpack::boolean, 8, DType::i1}}};
  for (const Known& one : known) {
    if (type.lanes == 1 && type.code == one.code && type.bits == one.bits) return one.dtype;
  }
  refuse_dtype(name, fmt::format("of DLPack's code {} with {} bits", type.code, type.bits));
}

int device_of(const dlpack::Device& device, const char* name) {
  switch (device.type) {
    case dlpack::cpu:
    case dlpack::cuda_host:
      return cpu_device;
    case dlpack::cuda:
    case dlpack::cuda_managed:
      return device.id;
    default:
      refuse_array(name, fmt::format("it lies on a device of DLPack's type {}", device.type),
                   "kernels take arrays in CPU memory and on CUDA devices");
  }
}

// In place: a call has four of them.
void read_tensor(const dlpack::Tensor& tensor, const char* name, TensorView& view) {
  check_rank(name, tensor.rank);
  view.data = static_cast<char*>(tensor.data) + tensor.byte_offset;
  view.dtype = dtype_of(tensor.dtype, name);
  view.rank = tensor.rank;
  view.device = device_of(tensor.device, name);
  std::int64_t dense = 1;
  for (int dim = tensor.rank - 1; dim >= 0; --dim) {
    view.shape[dim] = tensor.shape[dim];
    view.strides[dim] = tensor.strides != nullptr ? tensor.strides[dim] : dense;
    dense *= tensor.shape[dim];
  }
}

TensorView view_of(const dlpack::Tensor& tensor, const char* name) {
  TensorView view;
  read_tensor(tensor, name, view);
  return view;
}

DType dtype_named(const char* name, const std::string& dtype) {
  const std::optional<DType> type = parse_dtype(dtype);
  if (!type) refuse_dtype(name, dtype);
  return *type;
}

TensorView read_numpy(const py::array& array, const char* name, int at, bool output) {
  check_rank(name, array.ndim());
  check_writeable(name, output, !array.writeable());
  TensorView view{.data = const_cast<void*>(array.data()), .rank = static_cast<int>(array.ndim())};
  const py::dtype dtype = array.dtype();
  view.dtype = dtype_named(name, py::str(dtype.attr("name")));
  constexpr char foreign = std::endian::native == std::endian::little ? '>' : '<';
  if (dtype.byteorder() == foreign) {
    refuse_layout(name, at, "its bytes are in the order of another kind of machine",
                  "pass x.astype(x.dtype.newbyteorder('='))");
  }
  for (int dim = 0; dim < view.rank; ++dim) {
    view.shape[dim] = array.shape(dim);
    view.strides[dim] = in_elements(name, at, array.strides(dim), view.dtype);
  }
  return view;
}

bool calls_to_true(PyObject* function, PyObject* const* arguments, std::size_t count) {
  const auto result =
      py::reinterpret_steal<py::object>(PyObject_Vectorcall(function, arguments, count, nullptr));
  if (!result) throw py::error_already_set();
  return result.ptr() == Py_True;
}

bool requires_gradient(py::handle array) {
  static PyObject* const attribute = PyUnicode_InternFromString("requires_grad");
  const auto wanted = py::reinterpret_steal<py::object>(PyObject_GetAttr(array.ptr(), attribute));
  if (!wanted) throw py::error_already_set();
  return wanted.ptr() == Py_True;
}

/// What torch.Tensor.new_empty, which `method` is, makes beside a tensor.
py::object new_empty(PyObject* method, py::handle beside, py::handle size, PyObject* dtype) {
  static PyObject* const names = py::make_tuple("dtype").release().ptr();
  PyObject* const arguments[] = {beside.ptr(), size.ptr(), dtype};
  auto made = py::reinterpret_steal<py::object>(PyObject_Vectorcall(method, arguments, 2, names));
  if (!made) throw py::error_already_set();
  return made;
}

// The gradients of q, k and v are recorded before their kernel is launched, with torch's recording
// off. Of any other array silence would cost the caller its gradient.
void refuse_lost_gradient(py::handle array, const char* name) {
  if (!requires_gradient(array)) return;
  refuse_array(name, "it requires a gradient, and this kernel computes none for it",
               "call under torch.no_grad(), or pass .detach()");
}

// A view such as z.conj().imag: torch negates when it reads, a kernel would not.
bool is_negated_lazily(py::handle array, const ArrayType& type) {
  PyObject* const self = array.ptr();
  return type.is_neg != nullptr && calls_to_true(type.is_neg, &self, 1);
}

void refuse_lazy_negation(py::handle array, const ArrayType& type, const char* name) {
  if (is_negated_lazily(array, type)) {
    refuse_array(name, "it is negated lazily: its memory holds the opposite numbers",
                 "pass .resolve_neg()");
  }
}

// A tensor whose memory cannot be had: one on torch's meta device has a shape all the same, of
// others it is told what they are. `error` is what the framework said.
TensorView read_without_memory(py::handle array, const char* name,
                               const py::error_already_set& error) {
  const py::object known = py::module_::import("flashcore.pytorch.tensors")
                               .attr("without_memory")(array, name, error.value());
  const py::tuple described = known, shape = described[0], strides = described[1];
  check_rank(name, static_cast<std::int64_t>(shape.size()));
  TensorView view{.rank = static_cast<int>(shape.size()), .device = no_device};
  view.dtype = dtype_named(name, described[2].cast<std::string>());
  for (int dim = 0; dim < view.rank; ++dim) {
    const auto at = static_cast<std::size_t>(dim);
    view.shape[dim] = shape[at].cast<std::int64_t>();
    view.strides[dim] = strides[at].cast<std::int64_t>();
  }
  return view;
}

bool is_module(py::handle type, const char* name) {
  const auto module = py::str(type.attr("__module__")).cast<std::string>();
  return module == name || module.starts_with(std::string(name) + ".");
}

CudaStream stream_of(py::handle stream) {
  py::object handle = py::reinterpret_borrow<py::object>(stream);
  if (py::hasattr(handle, "__cuda_stream__")) {  // (version, handle)
    const py::object described = handle.attr("__cuda_stream__")();
    if (py::isinstance<py::tuple>(described) && py::len(described) == 2)
      handle = described[py::int_(1)];
  } else if (py::hasattr(handle, "cuda_stream")) {
    handle = handle.attr("cuda_stream");
  } else if (py::hasattr(handle, "ptr")) {
    handle = handle.attr("ptr");
  }
  if (py::isinstance<py::int_>(handle) && !py::isinstance<py::bool_>(handle)) {
    const auto value = PyLong_AsUnsignedLongLong(handle.ptr());
    if (PyErr_Occurred() == nullptr) return reinterpret_cast<CudaStream>(value);
    PyErr_Clear();
  }
  throw DeviceError({.what = "stream",
                     .why = fmt::format("{} is no CUDA stream", described(stream)),
                     .fix = "pass a stream of torch or CuPy, or its handle as an int",
                     .where = {}});
}

}  // namespace

std::uintptr_t stream_handle(py::handle stream) {
  return reinterpret_cast<std::uintptr_t>(stream_of(stream));
}

// Asked once a launch, since nothing of Python runs in between that could change it.
bool ArrayReader::is_recording(PyObject* ask) {
  if (!is_recording_) is_recording_ = calls_to_true(ask, nullptr, 0);
  return *is_recording_;
}

py::object ArrayReader::empty_like(py::handle array) {
  PyObject* const function = type_of(array).empty_like;
  if (function == nullptr) return {};
  PyObject* const self = array.ptr();
  auto made = py::reinterpret_steal<py::object>(PyObject_Vectorcall(function, &self, 1, nullptr));
  if (!made) throw py::error_already_set();
  return made;
}

bool ArrayReader::makes_bytes(py::handle array) { return type_of(array).new_empty != nullptr; }

py::object ArrayReader::bytes_beside(py::handle array, std::size_t bytes) {
  const ArrayType& type = type_of(array);
  return new_empty(type.new_empty, array, py::int_(bytes), type.byte);
}

py::object ArrayReader::floats_beside(py::handle array, std::span<const std::int64_t> shape) {
  const ArrayType& type = type_of(array);
  if (type.new_empty == nullptr) return {};
  py::tuple sizes(shape.size());
  for (std::size_t dim = 0; dim < shape.size(); ++dim) sizes[dim] = shape[dim];
  return new_empty(type.new_empty, array, sizes, type.float32);
}

TensorView ArrayReader::read(py::handle array, const char* name, int at, bool output) {
  const ArrayType& type = type_of(array);
  if (type.is_recording != nullptr && is_recording(type.is_recording)) {
    refuse_lost_gradient(array, name);
  }
  refuse_lazy_negation(array, type, name);
  TensorView view;
  if (type.api != nullptr) {
    dlpack::Tensor tensor;
    view = type.api->borrow(array.ptr(), &tensor) == 0
               ? view_of(tensor, name)
               : read_without_memory(array, name, py::error_already_set());
  } else if (py::isinstance<py::array>(array)) {
    view = read_numpy(py::reinterpret_borrow<py::array>(array), name, at, output);
  } else if (py::hasattr(array, "__dlpack__")) {
    view = read_capsule(array, name, output);
  } else if (py::hasattr(array, "__cuda_array_interface__")) {
    const CudaInterfaceArray given = read_cuda_interface(array, name, at, output);
    view = given.view;
    if (given.stream) producers_.push_back(*given.stream);
  } else {
    throw SpecError({.what = fmt::format("array {} = {}", name, described(array)),
                     .why = "it has neither __dlpack__ nor __cuda_array_interface__",
                     .fix = "pass an array of NumPy, torch, CuPy or JAX",
                     .where = {}});
  }
  note(array, view);
  return view;
}

void ArrayReader::note(py::handle array, const TensorView& view) {
  if (view.device < 0 || first_gpu_array_) return;
  first_gpu_array_ = array;
  device_ = view.device;
}

bool ArrayReader::is_plain(py::handle array) {
  const ArrayType& type = type_of(array);
  if (type.api == nullptr || type.is_special) return false;
  if (type.modes == nullptr) return true;
  const auto count =
      py::reinterpret_steal<py::object>(PyObject_Vectorcall(type.modes, nullptr, 0, nullptr));
  if (!count) throw py::error_already_set();
  return PyLong_AsLong(count.ptr()) == 0;
}

bool ArrayReader::read_plainly(py::handle array, TensorView& view) {
  const ArrayType& type = type_of(array);
  if (type.is_recording != nullptr && is_recording(type.is_recording) && requires_gradient(array))
    return false;
  return read_by(type.api, array, view) &&
         !(type.may_be_neg[static_cast<std::size_t>(view.dtype)] && is_negated_lazily(array, type));
}

bool ArrayReader::read_new(py::handle array, TensorView& view) {
  return read_by(type_of(array).api, array, view);
}

bool ArrayReader::read_by(const dlpack::ExchangeApi* api, py::handle array, TensorView& view) {
  dlpack::Tensor tensor;
  if (api == nullptr) return false;
  if (api->borrow(array.ptr(), &tensor) != 0) {
    PyErr_Clear();
    return false;
  }
  try {
    read_tensor(tensor, "", view);
  } catch (const Error&) {
    return false;
  }
  note(array, view);
  return true;
}

TensorView ArrayReader::read_capsule(py::handle array, const char* name, bool output) {
  const auto device = array.attr("__dlpack_device__")().cast<std::pair<int, int>>();
  py::dict keywords;
  if (device.first == dlpack::cuda || device.first == dlpack::cuda_managed) {
    keywords["stream"] = exporter_stream(array);
  }
  const py::object exporter = array.attr("__dlpack__");
  py::object capsule;
  try {
    keywords["max_version"] = py::make_tuple(1, 3);
    capsule = exporter(**keywords);
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_TypeError)) throw;
    keywords.attr("pop")("max_version");  // an exporter from before DLPack 1.0
    capsule = exporter(**keywords);
  }
  // Not renamed to "used_...": the capsule stays the owner and frees the tensor when we let it go.
  owners_.push_back(capsule);
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned")) {
    const auto* held = static_cast<dlpack::VersionedTensor*>(
        PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
    check_writeable(name, output, (held->flags & dlpack::read_only_flag) != 0);
    return view_of(held->tensor, name);
  }
  const auto* held =
      static_cast<dlpack::ManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
  if (held == nullptr) throw py::error_already_set();
  return view_of(held->tensor, name);
}

// What __dlpack__ is told: the stream that the kernel will use, on which the exporter then orders
// its pending work. For torch and CuPy that is their current stream, which needs no ordering (-1).
py::object ArrayReader::exporter_stream(py::handle array) const {
  if (given_stream_.is_none()) {
    const py::handle type = py::type::handle_of(array);
    return py::int_(is_module(type, "torch") || is_module(type, "cupy") ? -1 : 1);
  }
  const auto handle = reinterpret_cast<std::uintptr_t>(stream_of(given_stream_));
  return py::int_(handle == 0 ? 1 : handle);  // 1 is DLPack's name of the default stream
}

void ArrayReader::check_stream() const {
  if (!given_stream_.is_none()) (void)stream_of(given_stream_);
}

CudaStream ArrayReader::stream() {
  const CudaStream chosen = choose_stream();
  if (!producers_.empty()) {
    const Driver& driver = Driver::get();
    const ContextGuard context(driver, device_);
    for (const CudaStream producer : producers_) order_streams(driver, producer, chosen);
  }
  return chosen;
}

CudaStream ArrayReader::choose_stream() {
  if (!given_stream_.is_none()) return stream_of(given_stream_);
  if (!first_gpu_array_) return nullptr;
  if (const dlpack::ExchangeApi* api = type_of(first_gpu_array_).api) {
    void* current = nullptr;
    if (api->current_stream(dlpack::cuda, device_, &current) != 0) throw py::error_already_set();
    return static_cast<CudaStream>(current);
  }
  const py::handle type = py::type::handle_of(first_gpu_array_);
  if (is_module(type, "torch")) {
    return stream_of(py::module_::import("torch.cuda").attr("current_stream")(device_));
  }
  if (is_module(type, "cupy")) {
    return stream_of(py::module_::import("cupy.cuda").attr("get_current_stream")());
  }
  return producers_.empty() ? nullptr : producers_.front();
}

}  // namespace flashcore::python
