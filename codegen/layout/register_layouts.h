// The register layouts of instructions and of plain tiles, as data (see dsl/ir/layout.h).
#pragma once

#include "dsl/ir/layout.h"
#include "dsl/schedule.h"

namespace flashcore {

/// Rows and columns of an accumulator of m16n8k16, `length` elements spread over `warps` warps.
/// Warps are numbered row by row: warp = m * warps_n + n.
ir::AxisLayout accumulator_rows(int length, int warps_m, int warps_n);
ir::AxisLayout accumulator_columns(int length, int warps_n);

/// Rows or columns of a product of opaque 16 x 16 blocks: which warp holds which block is all there
/// is to know. A block counts as 16 slots along each axis.
ir::AxisLayout block_layout(int length, int warps, int warp_divisor);

/// Rows and columns of a tile that no product touches: warps share out the rows, the lanes of a
/// warp lie along the columns, `slots` neighbouring elements each, so that a warp reads whole
/// lines.
struct PlainLayout {
  ir::AxisLayout rows, columns;
};
PlainLayout plain_tile(int rows, int columns, int warps, int slots);

/// Rows and columns of a tile between products, which shared memory deals out: two lanes share a
/// row (four, where a warp has eight rows), eight neighbouring elements between them, so that a row
/// is reduced in one or two shuffles. Together with a pitch of 8 elements more than a row
/// (shared_pitch) no access meets another's bank. Warps beyond the rows repeat what others do.
PlainLayout row_tile(int rows, int columns, int warps);

/// Elements from row to row of a shared tile that is not swizzled.
int shared_pitch(int columns);

/// The same for a tile that feeds products: 0, which is swizzled, where the instruction reads rows
/// one by one; opaque blocks are read by their first address and a pitch.
int operand_pitch(const Schedule& schedule, int columns);

/// A vector on its own, spread over the lanes.
ir::AxisLayout plain_vector(int length, int warps);

}  // namespace flashcore
