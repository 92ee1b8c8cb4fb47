// Where a block that computes several tiles finds the segments of ragged axes, and with them the tiles
// of packed sequences.
#pragma once

#include <vector>

#include "codegen/passes/copy_ops.h"
#include "dsl/ir/builder.h"

namespace flashcore {

/// Segments along the first axis of parallel_tiles. They are successive where segment i begins where
/// element i of a tensor says, and ends where the next one begins, or in front of that. Then the tiles of all
/// of them have numbers together, which stand for few tiles that do not exist, however the segments differ in
/// length.
class TileSegments {
 public:
  TileSegments(ir::Function& f, ir::AxisId rows);

  /// The parallel axis that counts successive segments; none where there are none.
  [[nodiscard]] ir::AxisId counted_by() const { return counted_by_; }
  /// Whether the tiles of all segments of an axis have numbers together.
  [[nodiscard]] bool counts_tiles_of(ir::AxisId axis) const { return counted_by_ && axis == rows_; }
  /// How many numbers tiles of successive segments have.
  ir::ValueId count(ir::Builder& b) const;
  /// Which segment has the tile of a number, which of its tiles that is, and whether there is one: of a segment
  /// that ends in front of the next one's begin there may be none, all the same.
  std::vector<ir::ValueId> find(ir::Builder& b, ir::ValueId number) const;

  /// Takes from the front of the program the ops that set segments, and all that depend on where a
  /// block's tile lies.
  void take_ops();
  /// Numbers that those ops load.
  [[nodiscard]] const std::vector<ir::ValueId>& loaded() const { return loaded_; }
  /// Copies these ops for the tile that a builder is at: all, or all but the loads where another role has
  /// `loaded` their numbers.
  OpCopier set(ir::Builder& b, const std::vector<ir::ValueId>& loaded = {});
  /// Has the ops of a block read what such copies make.
  void rename_in(ir::BlockId block, const OpCopier& placed) const;

 private:
  [[nodiscard]] bool is_handed_on(const ir::Op& op) const;
  /// Whether a number is at most where the segment behind the block's own one begins.
  [[nodiscard]] bool is_within(ir::ValueId number) const;

  ir::Function& f_;
  ir::AxisId rows_, counted_by_;
  ir::TensorId starts_;
  std::vector<ir::OpId> segment_ops_;
  std::vector<ir::ValueId> loaded_;
};

/// The length of the dimension that the segments of an axis lie on, or else of the axis.
ir::ValueId length_of_dimension(ir::Builder& b, ir::AxisId axis);

}  // namespace flashcore
