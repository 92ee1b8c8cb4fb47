// What every way of reading an array refuses in the same words.
#pragma once

#include <cstdint>
#include <string>

#include <pybind11/pytypes.h>

#include "dsl/dtype.h"

namespace flashcore::python {

/// A value in a few words, for a message.
[[nodiscard]] std::string described(pybind11::handle value);

/// Throws DeviceError about the array that messages call `name`.
[[noreturn]] void refuse_array(const char* name, std::string why, std::string fix);
/// Throws SpecError.
[[noreturn]] void refuse_dtype(const char* name, const std::string& given);

/// Throws LayoutError: a copy of the launch's tensor `at` would do.
[[noreturn]] void refuse_layout(const char* name, int at, std::string why, std::string fix);

void check_rank(const char* name, std::int64_t rank);
void check_writeable(const char* name, bool output, bool read_only);

/// NumPy's and CUDA's interfaces count strides in bytes.
std::int64_t in_elements(const char* name, int at, std::int64_t bytes, DType type);

}  // namespace flashcore::python
