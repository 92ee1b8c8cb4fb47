// The register layouts of accumulators and of plain tiles, as data (see dsl/ir/layout.h).
#pragma once

#include "dsl/ir/layout.h"

namespace flashcore {

/// An axis of `length` elements, spread over `warps` warps by repeating a fragment.
ir::AxisLayout spread(ir::AxisLayout fragment, int length, int warps, int warp_divisor);

/// The accumulator of mma.sync and wgmma, fragments of 16 rows and 8 columns: a lane has two
/// neighbouring columns of two rows.
inline constexpr ir::AxisLayout sum_rows{
    .slots = 2, .slot_stride = 8, .lanes = 8, .lane_divisor = 4};
inline constexpr ir::AxisLayout sum_columns{.slots = 2, .lanes = 4, .lane_stride = 2};

/// How the warps of a block divide rows and columns among them. They are numbered row by row, or
/// column by column: the warps of a warpgroup, which multiply rows of their own, are neighbours.
struct WarpGrid {
  int along_rows, along_columns;
  bool by_columns = false;

  [[nodiscard]] int row_divisor() const { return by_columns ? 1 : along_columns; }
  [[nodiscard]] int column_divisor() const { return by_columns ? along_rows : 1; }
};

/// Rows and columns of a tile of such sums.
ir::AxisLayout accumulator_rows(int length, const WarpGrid& grid);
ir::AxisLayout accumulator_columns(int length, const WarpGrid& grid);

/// Rows and columns of a tile that no product touches: the rows are divided among the warps, and
/// the columns among the lanes of a warp, `slots` neighbouring elements each, so that a warp reads
/// whole lines. A tile that is packed `in_pairs` has fewer lanes along a row rather than one
/// element each.
struct PlainLayout {
  ir::AxisLayout rows, columns;
};
PlainLayout plain_tile(int rows, int columns, int warps, int slots, bool in_pairs = false);

/// Rows and columns of a tile between products, read from shared memory: two lanes have one row
/// (four, where a warp has eight rows), with eight neighbouring elements in each step, so that one
/// or two shuffles reduce a row. Together with a pitch of 8 elements more than a row (shared_pitch)
/// accesses have no bank conflicts. Warps beyond the rows repeat the work of others.
PlainLayout row_tile(int rows, int columns, int warps);

/// Elements from row to row of a shared tile that is not swizzled.
int shared_pitch(int columns);

/// A vector that is no row of a matrix, spread over the lanes.
ir::AxisLayout plain_vector(int length, int warps);

}  // namespace flashcore
