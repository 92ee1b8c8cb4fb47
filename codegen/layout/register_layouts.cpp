#include "codegen/layout/register_layouts.h"

namespace flashcore {

using ir::AxisLayout;

AxisLayout spread(AxisLayout fragment, int length, int warps, int warp_divisor) {
  fragment.warps = warps;
  fragment.warp_divisor = warp_divisor;
  fragment.fragments = length / (fragment.fragment_size() * warps);
  return fragment;
}

AxisLayout accumulator_rows(int length, const WarpGrid& grid) {
  const bool divides = length % (sum_rows.fragment_size() * grid.along_rows) == 0;
  return spread(sum_rows, length, divides ? grid.along_rows : 1, grid.row_divisor());
}

AxisLayout accumulator_columns(int length, const WarpGrid& grid) {
  const bool divides = length % (sum_columns.fragment_size() * grid.along_columns) == 0;
  return spread(sum_columns, length, divides ? grid.along_columns : 1, grid.column_divisor());
}

PlainLayout row_tile(int rows, int columns, int warps) {
  int used = warps;
  while (warps % used != 0 || rows % (8 * used) != 0) --used;
  const int share = rows / used, lanes = share % 16 == 0 ? 2 : 4, slots = 8 / lanes;
  PlainLayout layout;
  layout.rows = {.warps = used,
                 .warp_divisor = warps / used,
                 .fragments = share * lanes / 32,
                 .lanes = 32 / lanes,
                 .lane_divisor = lanes};
  layout.columns = {.fragments = columns / 8, .slots = slots, .lanes = lanes, .lane_stride = slots};
  return layout;
}

int shared_pitch(int columns) { return columns + 8; }

namespace {

/// The largest power of two that divides `length`, at most `limit`.
int power_of_two_divisor(int length, int limit) {
  int divisor = 1;
  while (divisor * 2 <= limit && length % (divisor * 2) == 0) divisor *= 2;
  return divisor;
}

}  // namespace

PlainLayout plain_tile(int rows, int columns, int warps, int slots, bool in_pairs) {
  const int pairs = in_pairs ? power_of_two_divisor(columns, slots) : 1;
  const int lanes = power_of_two_divisor(columns / pairs, 32);
  slots = power_of_two_divisor(columns / lanes, slots);
  const int row_lanes = 32 / lanes, row_warps = power_of_two_divisor(rows / row_lanes, warps);
  PlainLayout layout;
  layout.columns = {
      .fragments = columns / (lanes * slots), .slots = slots, .lanes = lanes, .lane_stride = slots};
  layout.rows = {.warps = row_warps,
                 .fragments = rows / (row_warps * row_lanes),
                 .lanes = row_lanes,
                 .lane_divisor = lanes};
  return layout;
}

AxisLayout plain_vector(int length, int warps) {
  const int lanes = power_of_two_divisor(length, 32);
  const int used_warps = power_of_two_divisor(length / lanes, warps);
  return {.warps = used_warps, .fragments = length / (lanes * used_warps), .lanes = lanes};
}

}  // namespace flashcore
