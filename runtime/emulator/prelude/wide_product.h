// Products of whole numbers that need more than 32 bits.
#pragma once

#include "language.h"
#include "types.cuh"

namespace fc {

FC_DEVICE i64 wide_product(int a, int b) { return static_cast<i64>(a) * b; }

}  // namespace fc
