// Four 8x8 matrices of 16-bit elements from the registers of a warp into shared memory (sm_90).
#pragma once

#include "convert.cuh"

namespace fc {

// 16 rows of 16 columns, as load_matrices reads them: lane 8i + r gives the address of row r of matrix i (16
// bytes, aligned), of which lane l holds elements 2(l % 4) and 2(l % 4) + 1 of row l / 4.
FC_DEVICE void store_matrices(u32 address, const u32 (&fragment)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(fragment[0]), "r"(fragment[1]), "r"(fragment[2]), "r"(fragment[3])
               : "memory");
}

// Rounds two fragments of a product's sums, which lie side by side, to T, and stores them as these matrices.
template <class T>
FC_DEVICE void store_matrices(u32 address, const float (&left)[4], const float (&right)[4]) {
  const u32 fragment[4] = {pack<T>(left[0], left[1]), pack<T>(left[2], left[3]),
                           pack<T>(right[0], right[1]), pack<T>(right[2], right[3])};
  store_matrices(address, fragment);
}

}  // namespace fc
