// The register layouts of instructions and of plain tiles, as data (see dsl/ir/layout.h).
#pragma once

#include "dsl/ir/layout.h"

namespace flashcore {

/// Rows and columns of an accumulator of m16n8k16, `length` elements spread over `warps` warps.
/// Warps are numbered row by row: warp = m * warps_n + n.
ir::AxisLayout accumulator_rows(int length, int warps_m, int warps_n);
ir::AxisLayout accumulator_columns(int length, int warps_n);

/// Rows and columns of a tile that no product touches: warps share out the rows, the lanes of a warp lie
/// along the columns, `slots` neighbouring elements each, so that a warp reads whole lines.
struct PlainLayout {
  ir::AxisLayout rows, columns;
};
PlainLayout plain_tile(int rows, int columns, int warps, int slots);

/// A vector on its own, spread over the lanes.
ir::AxisLayout plain_vector(int length, int warps);

}  // namespace flashcore
