// Products of opaque blocks (sm_75; bf16 from sm_80): d[16, 16] += a[16, 16] b[16, 16], fp32 sums.
//
// Which lane holds which element of a block differs between architectures and is documented for
// none: a block is loaded, multiplied and stored whole, by all 32 lanes with the same arguments.
// Blocks lie in shared memory at addresses of 32 bytes, `pitch` elements from row to row; `turned`
// ones are stored the other way round.
#pragma once

#include "types.cuh"

namespace fc {

struct sum_block {
  float held[8];
};

template <class T>
struct block_registers {
  static constexpr int count = 8;
};
template <>
struct block_registers<bf16> {
  static constexpr int count = 4;
};

template <class T, bool transposed>
struct left_block {
  u32 held[block_registers<T>::count];
};
template <class T, bool transposed>
struct right_block {
  u32 held[block_registers<T>::count];
};

template <class T, bool transposed>
FC_DEVICE void load_block(left_block<T, transposed>& block, u32 address, u32 pitch);
template <class T, bool transposed>
FC_DEVICE void load_block(right_block<T, transposed>& block, u32 address, u32 pitch);
template <class T, bool left_transposed, bool right_transposed>
FC_DEVICE void multiply_blocks(sum_block& d, const left_block<T, left_transposed>& a,
                               const right_block<T, right_transposed>& b);

FC_DEVICE void store_block(u32 address, u32 pitch, const sum_block& d) {
  asm volatile(
      "wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8}, "
      "%9;" ::"r"(address),
      "f"(d.held[0]), "f"(d.held[1]), "f"(d.held[2]), "f"(d.held[3]), "f"(d.held[4]),
      "f"(d.held[5]), "f"(d.held[6]), "f"(d.held[7]), "r"(pitch)
      : "memory");
}

#define FC_LOAD_BLOCK_F16(side, operand, transposed, order)                                       \
  template <>                                                                                     \
  FC_DEVICE void load_block<f16, transposed>(side<f16, transposed> & x, u32 address, u32 pitch) { \
    asm volatile("wmma.load." operand ".sync.aligned." order                                      \
                 ".m16n16k16.shared.f16 "                                                         \
                 "{%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"                                    \
                 : "=r"(x.held[0]), "=r"(x.held[1]), "=r"(x.held[2]), "=r"(x.held[3]),            \
                   "=r"(x.held[4]), "=r"(x.held[5]), "=r"(x.held[6]), "=r"(x.held[7])             \
                 : "r"(address), "r"(pitch)                                                       \
                 : "memory");                                                                     \
  }
#define FC_LOAD_BLOCK_BF16(side, operand, transposed, order)                           \
  template <>                                                                          \
  FC_DEVICE void load_block<bf16, transposed>(side<bf16, transposed> & x, u32 address, \
                                              u32 pitch) {                             \
    asm volatile("wmma.load." operand ".sync.aligned." order                           \
                 ".m16n16k16.shared.bf16 "                                             \
                 "{%0, %1, %2, %3}, [%4], %5;"                                         \
                 : "=r"(x.held[0]), "=r"(x.held[1]), "=r"(x.held[2]), "=r"(x.held[3])  \
                 : "r"(address), "r"(pitch)                                            \
                 : "memory");                                                          \
  }
#define FC_MULTIPLY_BLOCKS(left, left_order, right, right_order)                                   \
  template <>                                                                                      \
  FC_DEVICE void multiply_blocks(sum_block& d, const left_block<f16, left>& a,                     \
                                 const right_block<f16, right>& b) {                               \
    asm volatile("wmma.mma.sync.aligned." left_order "." right_order                               \
                 ".m16n16k16.f32.f32 "                                                             \
                 "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11, %12, %13, %14, %15}, "      \
                 "{%16, %17, %18, %19, %20, %21, %22, %23}, {%0, %1, %2, %3, %4, %5, %6, %7};"     \
                 : "+f"(d.held[0]), "+f"(d.held[1]), "+f"(d.held[2]), "+f"(d.held[3]),             \
                   "+f"(d.held[4]), "+f"(d.held[5]), "+f"(d.held[6]), "+f"(d.held[7])              \
                 : "r"(a.held[0]), "r"(a.held[1]), "r"(a.held[2]), "r"(a.held[3]), "r"(a.held[4]), \
                   "r"(a.held[5]), "r"(a.held[6]), "r"(a.held[7]), "r"(b.held[0]), "r"(b.held[1]), \
                   "r"(b.held[2]), "r"(b.held[3]), "r"(b.held[4]), "r"(b.held[5]), "r"(b.held[6]), \
                   "r"(b.held[7]));                                                                \
  }                                                                                                \
  template <>                                                                                      \
  FC_DEVICE void multiply_blocks(sum_block& d, const left_block<bf16, left>& a,                    \
                                 const right_block<bf16, right>& b) {                              \
    asm volatile("wmma.mma.sync.aligned." left_order "." right_order                               \
                 ".m16n16k16.f32.bf16.bf16.f32 "                                                   \
                 "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, "                          \
                 "{%12, %13, %14, %15}, {%0, %1, %2, %3, %4, %5, %6, %7};"                         \
                 : "+f"(d.held[0]), "+f"(d.held[1]), "+f"(d.held[2]), "+f"(d.held[3]),             \
                   "+f"(d.held[4]), "+f"(d.held[5]), "+f"(d.held[6]), "+f"(d.held[7])              \
                 : "r"(a.held[0]), "r"(a.held[1]), "r"(a.held[2]), "r"(a.held[3]), "r"(b.held[0]), \
                   "r"(b.held[1]), "r"(b.held[2]), "r"(b.held[3]));                                \
  }

FC_LOAD_BLOCK_F16(left_block, "a", false, "row")
FC_LOAD_BLOCK_F16(left_block, "a", true, "col")
FC_LOAD_BLOCK_F16(right_block, "b", false, "row")
FC_LOAD_BLOCK_F16(right_block, "b", true, "col")
FC_LOAD_BLOCK_BF16(left_block, "a", false, "row")
FC_LOAD_BLOCK_BF16(left_block, "a", true, "col")
FC_LOAD_BLOCK_BF16(right_block, "b", false, "row")
FC_LOAD_BLOCK_BF16(right_block, "b", true, "col")
FC_MULTIPLY_BLOCKS(false, "row", false, "row")
FC_MULTIPLY_BLOCKS(false, "row", true, "col")
FC_MULTIPLY_BLOCKS(true, "col", false, "row")
FC_MULTIPLY_BLOCKS(true, "col", true, "col")

#undef FC_LOAD_BLOCK_F16
#undef FC_LOAD_BLOCK_BF16
#undef FC_MULTIPLY_BLOCKS

}  // namespace fc
