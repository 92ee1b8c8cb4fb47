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

// Of f16 elements a block has eight registers, of bf16 elements the first four of these.
template <class T, bool transposed>
struct left_block {
  u32 held[8];
};
template <class T, bool transposed>
struct right_block {
  u32 held[8];
};

template <class T, bool transposed>
FC_DEVICE void load_block(left_block<T, transposed>& block, u32 address, u32 pitch);
template <class T, bool transposed>
FC_DEVICE void load_block(right_block<T, transposed>& block, u32 address, u32 pitch);
template <class T, bool left_transposed, bool right_transposed>
FC_DEVICE void multiply_blocks(sum_block& d, const left_block<T, left_transposed>& a,
                               const right_block<T, right_transposed>& b);

// Registers of a block as operands, and their places in the text.
#define FC_FOUR(constraint, x) \
  constraint(x.held[0]), constraint(x.held[1]), constraint(x.held[2]), constraint(x.held[3])
#define FC_EIGHT(constraint, x)                                                                \
  FC_FOUR(constraint, x), constraint(x.held[4]), constraint(x.held[5]), constraint(x.held[6]), \
      constraint(x.held[7])
#define FC_SUM_PLACES "{%0, %1, %2, %3, %4, %5, %6, %7}"

FC_DEVICE void store_block(u32 address, u32 pitch, const sum_block& d) {
  asm volatile(
      "wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8}, "
      "%9;" ::"r"(address),
      FC_EIGHT("f", d), "r"(pitch)
      : "memory");
}

#define FC_LOAD_BLOCK(T, type, registers, places, side, operand, transposed, order)               \
  template <>                                                                                     \
  FC_DEVICE void load_block<T, transposed>(side<T, transposed> & x, u32 address, u32 pitch) {     \
    asm volatile("wmma.load." operand ".sync.aligned." order ".m16n16k16.shared." type " " places \
                 : registers("=r", x)                                                             \
                 : "r"(address), "r"(pitch)                                                       \
                 : "memory");                                                                     \
  }
#define FC_MULTIPLY_BLOCKS(T, types, registers, places, left, left_order, right, right_order) \
  template <>                                                                                 \
  FC_DEVICE void multiply_blocks(sum_block& d, const left_block<T, left>& a,                  \
                                 const right_block<T, right>& b) {                            \
    asm volatile("wmma.mma.sync.aligned." left_order "." right_order ".m16n16k16." types      \
                 " " FC_SUM_PLACES ", " places ", " FC_SUM_PLACES ";"                         \
                 : FC_EIGHT("+f", d)                                                          \
                 : registers("r", a), registers("r", b));                                     \
  }
#define FC_BLOCKS(T, type, types, registers, load_places, multiply_places)             \
  FC_LOAD_BLOCK(T, type, registers, load_places, left_block, "a", false, "row")        \
  FC_LOAD_BLOCK(T, type, registers, load_places, left_block, "a", true, "col")         \
  FC_LOAD_BLOCK(T, type, registers, load_places, right_block, "b", false, "row")       \
  FC_LOAD_BLOCK(T, type, registers, load_places, right_block, "b", true, "col")        \
  FC_MULTIPLY_BLOCKS(T, types, registers, multiply_places, false, "row", false, "row") \
  FC_MULTIPLY_BLOCKS(T, types, registers, multiply_places, false, "row", true, "col")  \
  FC_MULTIPLY_BLOCKS(T, types, registers, multiply_places, true, "col", false, "row")  \
  FC_MULTIPLY_BLOCKS(T, types, registers, multiply_places, true, "col", true, "col")

FC_BLOCKS(f16, "f16", "f32.f32", FC_EIGHT, "{%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;",
          "{%8, %9, %10, %11, %12, %13, %14, %15}, {%16, %17, %18, %19, %20, %21, %22, %23}")
FC_BLOCKS(bf16, "bf16", "f32.bf16.bf16.f32", FC_FOUR, "{%0, %1, %2, %3}, [%4], %5;",
          "{%8, %9, %10, %11}, {%12, %13, %14, %15}")

}  // namespace fc
