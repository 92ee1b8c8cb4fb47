// Four 8x8 matrices of 16-bit elements from shared memory into the registers of a warp.
#pragma once

#include "types.cuh"

namespace fc {

// Lane 8i + r gives the address of row r of matrix i (16 bytes, aligned). fragment[i] of lane l
// then holds elements 2(l % 4) and 2(l % 4) + 1 of row l / 4 of matrix i.
FC_DEVICE void load_matrices(u32 (&fragment)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
               : "r"(address)
               : "memory");
}

// The same with every matrix transposed on the way.
FC_DEVICE void load_matrices_transposed(u32 (&fragment)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
               : "r"(address)
               : "memory");
}

}  // namespace fc
