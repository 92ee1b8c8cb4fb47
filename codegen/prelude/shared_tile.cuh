// Where the elements of a tile of 16-bit elements lie in shared memory.
//
// A tile of R rows and C columns (C a multiple of 16) is cut into panels of 64 columns, then one of 32
// and one of 16 for the rest. A panel stores its rows one after the other, 128, 64 or 32 bytes each, and
// permutes the 16-byte chunks of a 128-byte line by the exclusive or with the number of the line. Eight
// rows read at the same column (ldmatrix) and eight neighbouring chunks written by neighbouring threads
// (a copy) then touch every bank once. These are also the 128-, 64- and 32-byte swizzles of TMA.
#pragma once

#include "types.cuh"

namespace fc {

// Byte offset of the chunk `column / 8` of a row; `column` is a multiple of 8.
template <int rows, int columns>
FC_DEVICE u32 chunk_offset(int row, int column) {
  static_assert(columns % 16 == 0, "a shared tile is padded to a multiple of 16 columns");
  constexpr int wide = columns / 64 * 64, middle = wide + columns % 64 / 32 * 32;
  if (column < wide) {
    const int chunk = column % 64 / 8;
    return static_cast<u32>(column / 64 * (rows * 128) + row * 128 + ((chunk ^ (row & 7)) * 16));
  }
  if (column < middle) {
    const int chunk = (column - wide) / 8;
    return static_cast<u32>(wide * 2 * rows + row * 64 + ((chunk ^ (row >> 1 & 3)) * 16));
  }
  const int chunk = (column - middle) / 8;
  return static_cast<u32>(middle * 2 * rows + row * 32 + ((chunk ^ (row >> 2 & 1)) * 16));
}

}  // namespace fc
