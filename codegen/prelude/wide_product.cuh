// Products of whole numbers that need more than 32 bits.
#pragma once

#include "types.cuh"

namespace fc {

// One instruction, also where the compiler does not see that both numbers have 32 bits.
FC_DEVICE i64 wide_product(int a, int b) {
  i64 product;
  asm("mul.wide.s32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
  return product;
}

}  // namespace fc
