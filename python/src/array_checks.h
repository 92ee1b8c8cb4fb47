// What every way of reading an array refuses in the same words.
#pragma once

#include <cstdint>
#include <string>

#include "dsl/dtype.h"

namespace flashcore::python {

/// Throws DeviceError about the array that messages call `name`.
[[noreturn]] void refuse_array(const char* name, std::string why, std::string fix);
/// Throws SpecError.
[[noreturn]] void refuse_dtype(const char* name, const std::string& given);

void check_rank(const char* name, std::int64_t rank);
void check_writeable(const char* name, bool output, bool read_only);

/// NumPy's and CUDA's interfaces count strides in bytes.
std::int64_t in_elements(const char* name, std::int64_t bytes, DType type);

}  // namespace flashcore::python
