// The memory space of a tile and its layout there, which the layout pass fills in for every value.
//
// A register tile is the product of one AxisLayout per axis. An axis of length n is cut into
// fragments; an element's position along the axis is the sum
//
//   (warp * fragments + fragment) * fragment_size  +  slot * slot_stride  +  lane * lane_stride
//
// where `warp` counts warps along this axis, `fragment` and `slot` number the registers of a thread
// and `lane` is (lane of the warp / lane_divisor) % lanes. For the accumulator of m16n8k16:
//
//   rows     16 = 2 slots 8 apart x 8 lanes 1 apart   (lane / 4)
//   columns   8 = 4 lanes 2 apart x 2 slots 1 apart   (lane % 4)
//
// A row vector of that tile has the layout of the rows alone: all lanes and warps along the columns
// hold the same elements. So a reduction drops the layout of its axis, a broadcast adds one, and no
// element moves. Two tiles agree if the layouts of their common axes are equal.
#pragma once

#include <cstdint>
#include <vector>

#include "dsl/ir/ids.h"

namespace flashcore::ir {

struct AxisLayout {
  int warps = 1, warp_divisor = 1;
  int fragments = 1;
  int slots = 1, slot_stride = 1;
  int lanes = 1, lane_divisor = 1, lane_stride = 1;

  [[nodiscard]] int fragment_size() const { return slots * lanes; }
  [[nodiscard]] int length() const { return warps * fragments * fragment_size(); }
  /// Of the element at `position`, what the thread that holds it adds for the fragment and the
  /// slot.
  [[nodiscard]] int offset(int position) const {
    const int inside = position % fragment_size();
    int slot = 0;
    while (slot + 1 < slots && !holds(inside - slot * slot_stride)) ++slot;
    return position / fragment_size() % fragments * fragment_size() + slot * slot_stride;
  }
  bool operator==(const AxisLayout&) const = default;

 private:
  /// Whether some lane begins so far into a fragment.
  [[nodiscard]] bool holds(int inside) const {
    return inside >= 0 && inside % lane_stride == 0 && inside / lane_stride < lanes;
  }
};

enum class Space : std::uint8_t {
  none,       ///< not decided, or a scalar, which is the same in every thread
  registers,  ///< one AxisLayout an axis
  operand,    ///< registers in the order a tensor core takes its left operand, packed 16-bit pairs
  opaque,     ///< fragments of wmma, 16 x 16: it is not known which lane holds which element
  shared,     ///< a slot of a shared buffer
};

struct Layout {
  Space space = Space::none;
  std::vector<AxisLayout>
      axes;  ///< registers, operand, fragments: parallel to the axes of the type

  bool operator==(const Layout&) const = default;
};

}  // namespace flashcore::ir
