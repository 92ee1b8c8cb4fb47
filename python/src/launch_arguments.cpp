#include "python/src/launch_arguments.h"

#include <cmath>
#include <cstdint>

#include <fmt/format.h>

#include "dsl/error.h"
#include "python/src/array_checks.h"
#include "runtime/overlap.h"

namespace flashcore::python {
namespace {

namespace py = pybind11;

void check_count(std::size_t given, std::size_t expected, const char* what) {
  if (given == expected) return;
  throw SpecError({.what = fmt::format("a launch with {} {}", given, what),
                   .why = fmt::format("the program has {}", expected),
                   .fix = {},
                   .where = {}});
}

}  // namespace

ScalarValue scalar_of(py::handle number, const ScalarArgument& expected) {
  const bool real = expected.dtype == DType::f32;
  try {
    if (!real) return number.cast<std::int32_t>();
    const auto value = number.cast<double>();
    // An infinite number may be meant; one that only becomes infinite is not.
    const auto single = static_cast<float>(value);
    if (std::isfinite(single) || !std::isfinite(value)) return single;
  } catch (const py::cast_error&) {  // no number at all
  }
  throw SpecError({.what = fmt::format("{} = {}", expected.name, described(number)),
                   .why = real ? "it is no number that fits 32 bits"
                               : "it is no whole number that fits 32 bits",
                   .fix = fmt::format("{}={}", expected.name, real ? "0.125, say" : "1, say"),
                   .where = {}});
}

LaunchArguments::LaunchArguments(const KernelSource& source, const py::tuple& arrays,
                                 const py::tuple& scalars, py::handle stream)
    : reader_(stream) {
  check_count(arrays.size(), source.tensors.size(), "arrays");
  check_count(scalars.size(), source.scalars.size(), "scalars");
  for (std::size_t i = 0; i < source.tensors.size(); ++i) {
    const TensorArgument& tensor = source.tensors[i];
    tensors_.push(reader_.read(PyTuple_GET_ITEM(arrays.ptr(), static_cast<Py_ssize_t>(i)),
                               tensor.name.c_str(), static_cast<int>(i), tensor.output));
  }
  for (std::size_t i = 0; i < source.scalars.size(); ++i) {
    scalars_.push(
        scalar_of(PyTuple_GET_ITEM(scalars.ptr(), static_cast<Py_ssize_t>(i)), source.scalars[i]));
  }
  check_outputs_apart(source, tensors());
  if (on_gpu()) {
    stream_ = reader_.stream();
  } else {
    reader_.check_stream();
  }
}

}  // namespace flashcore::python
