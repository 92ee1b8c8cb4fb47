// The part of verify() that knows which blocks differ in a value, and so which of them store to the
// same elements.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "dsl/ir/function.h"

namespace flashcore::ir {

class StoreRules {
 public:
  explicit StoreRules(const Function& f) : f_(f), depends_(f.values.size()) {}

  /// Notes by which parallel axes blocks differ in a value that an op makes.
  void define(ValueId value, const Op& by);
  /// Notes that blocks differ in an argument of a loop's region as they do in its initial value.
  void carry(ValueId initial, ValueId argument) {
    depends_[argument.index] = depends_[initial.index];
  }
  /// Notes by which parallel axes blocks differ in the segment of a ragged axis, from the op that sets it.
  void place(const Op& segment);
  [[nodiscard]] bool has_segment(AxisId axis) const { return segment_depends_.contains(axis); }
  [[nodiscard]] bool is_stored(TensorId tensor) const { return stored_.contains(tensor); }

  /// Whether a store names other elements at each position along a parallel axis.
  [[nodiscard]] bool names(const Op& store, AxisId axis) const;
  /// Blocks that differ along an axis must not write the same elements, but may add to them. Throws
  /// SpecError.
  void check(const Op& store);

 private:
  [[nodiscard]] bool is_parallel(AxisId axis) const {
    return f_[axis].kind == AxisKind::parallel || f_[axis].kind == AxisKind::parallel_tiles;
  }
  [[nodiscard]] std::vector<AxisId> axes_of_sharing_blocks(const Op& store) const;
  void check_turns(const Op& store, const std::vector<AxisId>& shared);
  [[nodiscard]] std::string list(const std::vector<AxisId>& axes) const;

  const Function& f_;
  std::map<TensorId, Accumulation> stored_;             ///< outputs, and how stores add to them
  std::vector<std::set<AxisId>> depends_;               ///< the parallel axes that decide a value
  std::map<AxisId, std::set<AxisId>> segment_depends_;  ///< those that decide an axis's part
};

}  // namespace flashcore::ir
