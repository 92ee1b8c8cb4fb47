// Where the elements of a tile of 16-bit elements lie in shared memory.
//
// A tile of R rows and C columns (C a multiple of 16) is cut into panels of 64 columns, then one of
// 32 and one of 16 for the rest. A panel stores its rows one after the other, 128, 64 or 32 bytes
// each, and permutes the 16-byte chunks of a 128-byte line by the exclusive or with the number of
// the line. Eight rows read at the same column (ldmatrix) and eight neighbouring chunks written by
// neighbouring threads (a copy) then touch every bank once. These are also the 128-, 64- and
// 32-byte swizzles of TMA.
#pragma once

#include "types.cuh"

namespace fc {

struct panel {
  u32 width, offset;  // columns; bytes from the start of the tile
};

// The panel of a tile that holds a column. Panels of one width follow each other. `of_warp`: the
// warp's number decides the column. No column lies beyond the tile, which the compiler cannot know
// then: it would choose between panels of several widths.
template <int rows, int columns, bool of_warp = false>
FC_DEVICE panel panel_at(u32 column) {
  static_assert(columns % 16 == 0, "a shared tile is padded to a multiple of 16 columns");
  constexpr u32 wide = columns / 64 * 64, middle = wide + columns % 64 / 32 * 32;
  if ((of_warp && columns % 64 == 0) || column < wide) return {64, 2 * rows * (column / 64 * 64)};
  if (column < middle) return {32, 2 * rows * wide};
  return {16, 2 * rows * middle};
}

// Byte offset, within a panel, of the chunk that holds `column` of a row.
FC_DEVICE u32 swizzled(u32 width, u32 row, u32 column) {
  const u32 chunk = column % width / 8, line = row / (64 / width), chunks = width / 8;
  return row * (width * 2) | (chunk ^ line % chunks) * 16;
}

// Byte offset of the chunk that holds `column` of a row of a tile.
template <int rows, int columns, bool of_warp = false>
FC_DEVICE u32 chunk_offset(u32 row, u32 column) {
  const panel at = panel_at<rows, columns, of_warp>(column);
  return at.offset + swizzled(at.width, row, column);
}

// The same for a chunk of a known panel: the one that holds the constant `panel_column`, at
// `column` of it.
template <int rows, int columns>
FC_DEVICE u32 panel_chunk_offset(u32 row, u32 column, u32 panel_column) {
  const panel at = panel_at<rows, columns>(panel_column);
  return at.offset + swizzled(at.width, row, column);
}

// The address a lane gives for a matrix of ldmatrix: `tile` + chunk_offset(row + row_step,
// column + column_step), where row and column depend on the lane and the steps are constants:
// row_step a multiple of 8, column 0 or 8, column_step a multiple of 16. Steps never carry into
// each other's bits, so all matrices of a panel share one lane-dependent address, changed by
// constants.
template <int rows, int columns, bool of_warp = false>
FC_DEVICE u32 matrix_address(u32 tile, u32 row, u32 column, u32 row_step, u32 column_step) {
  const panel at = panel_at<rows, columns, of_warp>(column_step);
  const u32 lane_address = tile + swizzled(at.width, row, column);
  return (lane_address ^ column_step % at.width * 2) + at.offset + row_step * (at.width * 2);
}

}  // namespace fc
