// Numbers in memory and what storing one loses.
#pragma once

#include <cstdint>

#include "dsl/dtype.h"

namespace flashcore {

/// The nearest value that the dtype has, ties to even. Integers are cut towards zero and kept in
/// range; a condition becomes 0 or 1.
double round_to(DType dtype, double value);

/// What a product that rounds its operands to tf32 multiplies: f32 with ten bits behind the first,
/// halves rounded away from zero.
double round_to_tf32(double value);

/// The element at `index` of an array.
double read_element(DType dtype, const void* data, std::int64_t index);

/// Rounds and writes it.
void write_element(DType dtype, void* data, std::int64_t index, double value);

}  // namespace flashcore
