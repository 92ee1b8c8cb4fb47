#include "python/src/array_checks.h"

#include <fmt/format.h>

#include "dsl/error.h"
#include "runtime/tensor.h"

namespace flashcore::python {

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

void check_rank(const char* name, std::int64_t rank) {
  if (rank > max_rank) {
    refuse_array(name, fmt::format("it has {} dimensions", rank),
                 fmt::format("kernels take at most {}", max_rank));
  }
}

void check_writeable(const char* name, bool output, bool read_only) {
  if (output && read_only) refuse_array(name, "it is read-only", "pass a writeable output");
}

std::int64_t in_elements(const char* name, std::int64_t bytes, DType type) {
  if (bytes % size_of(type) != 0) {
    refuse_array(
        name,
        fmt::format("a stride of {} bytes is no multiple of an element's {}", bytes, size_of(type)),
        "copy the array");
  }
  return bytes / size_of(type);
}

}  // namespace flashcore::python
