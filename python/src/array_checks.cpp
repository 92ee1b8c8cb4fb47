#include "python/src/array_checks.h"

#include <fmt/format.h>
#include <pybind11/pybind11.h>

#include "dsl/error.h"
#include "runtime/launch_errors.h"
#include "runtime/tensor.h"

namespace flashcore::python {

namespace py = pybind11;

std::string described(py::handle value) {
  return py::module_::import("flashcore.arguments").attr("described")(value).cast<std::string>();
}

void refuse_array(const char* name, std::string why, std::string fix) {
  throw DeviceError({.what = fmt::format("array {}", name),
                     .why = std::move(why),
                     .fix = std::move(fix),
                     .where = {}});
}

void refuse_dtype(const char* name, const std::string& given) {
  throw SpecError({.what = fmt::format("array {}", name),
                   .why = fmt::format("its dtype is {}", given),
                   .fix = "kernels take f16, bf16 and f32; what masks and scores read may also be "
                          "f64, an integer of up to 64 bits, u8 or bool",
                   .where = {}});
}

void refuse_layout(const char* name, int at, std::string why, std::string fix) {
  throw LayoutError({.what = fmt::format("array {}", name),
                     .why = std::move(why),
                     .fix = std::move(fix),
                     .where = {}},
                    at);
}

void check_rank(const char* name, std::int64_t rank) {
  if (rank > max_rank) {
    refuse_array(name, fmt::format("it has {} dimensions", rank),
                 fmt::format("kernels take at most {}", max_rank));
  }
}

void check_writeable(const char* name, bool output, bool read_only) {
  if (output && read_only) refuse_array(name, "it is read-only", "pass a writeable output");
}

std::int64_t in_elements(const char* name, int at, std::int64_t bytes, DType type) {
  if (bytes % size_of(type) != 0) {
    refuse_layout(
        name, at,
        fmt::format("a stride of {} bytes is no multiple of an element's {}", bytes, size_of(type)),
        "pass a copy");
  }
  return bytes / size_of(type);
}

}  // namespace flashcore::python
