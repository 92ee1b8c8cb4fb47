// What a condition can be for the rows of a block, at one exact position of the loop's axis.
//
// A mask compares positions, or values that were looked up by position. For a whole tile of rows
// and one key the question is whether the mask may hold for some row, and whether it surely holds
// for all of them. The analysis answers with two conditions on the key, built as ordinary
// operations: every number gets a lowest and a highest value over the rows, every condition a
// `maybe` and a `surely`.
//
// `maybe` is never false where the condition holds for some row, and `surely` is never true where
// it fails for some row; skipping tiles relies on nothing else. Both are exact where numbers are
// monotone in the row (affine forms, floor division by a positive number, minimum and maximum). A
// number that depends on rows alone in another way, such as a document number, is evaluated row by
// row, and its extremes over the tile are taken.
#pragma once

#include <map>
#include <optional>

#include "codegen/analysis/slope.h"
#include "dsl/ir/affine.h"
#include "dsl/ir/builder.h"
#include "dsl/ir/function.h"

namespace flashcore {

/// Two conditions, i1 over the loop's axis or scalar; what is known already is a constant.
struct Truth {
  ir::ValueId maybe, surely;
};

class IntervalAnalysis {
 public:
  /// `outside` builds before the loop, where extremes over rows belong; `inside` builds in a region
  /// that knows the positions of one tile of the loop's axis.
  IntervalAnalysis(ir::Builder& outside, ir::Builder& inside, const ir::Op& loop);

  Truth condition(ir::ValueId value);

  ir::ValueId both(ir::ValueId a, ir::ValueId b);
  ir::ValueId either(ir::ValueId a, ir::ValueId b);
  ir::ValueId known(bool holds) { return number(holds ? 1 : 0, DType::i1); }

 private:
  /// Lowest and highest value over the rows. Without one nothing is known.
  struct Range {
    ir::ValueId low, high;
    [[nodiscard]] bool known() const { return static_cast<bool>(low); }
    [[nodiscard]] bool is_point() const { return low == high; }
  };
  /// What a map knows of a value, derived when it is first asked for.
  template <class Map, class Derive>
  static typename Map::mapped_type remembered(Map& map, ir::ValueId value, const Derive& derive) {
    const auto found = map.find(value);
    return found != map.end() ? found->second : (map[value] = derive());
  }

  /// What stands for the position of a row in a copy of an expression.
  enum class Rows { first, last, each };

  Truth unknown() { return {known(true), known(false)}; }
  Truth derive_condition(ir::ValueId value);
  Range range(ir::ValueId value);
  Range derive(ir::ValueId value);
  Range derive_mixed(const ir::Op& op);
  Range product(const Range& a, const Range& b);
  Range remainder(const Range& a, ir::ValueId by);
  Range extremes(ir::ValueId value);
  std::optional<Range> affine_range(const AffineForm& form);
  Truth compare(const ir::Op& op);
  Truth compare(ir::OpCode code, ir::ValueId a, ir::ValueId b);
  Truth some_and_all(ir::ValueId condition);
  Truth choice(const Truth& c, const Truth& yes, const Truth& no);
  ir::ValueId invert(ir::ValueId a);

  /// Whether the value is made of positions, scalars and gathers alone, by operations without a
  /// state.
  bool is_pure(ir::ValueId value);
  /// With the row.
  Slope slope(ir::ValueId value);
  Slope derive_slope(ir::ValueId value);
  bool may_be_nan(ir::ValueId value);
  bool derive_may_be_nan(ir::ValueId value);
  bool rows_only(ir::ValueId value) const;
  bool has_rows(ir::ValueId value) const;

  ir::ValueId copy(ir::ValueId value, Rows rows);
  ir::ValueId elementwise(ir::OpCode code, std::vector<ir::ValueId> operands);
  ir::ValueId number(double value, DType dtype);
  ir::ValueId first_row();
  ir::ValueId last_row();
  ir::Builder& builder_for(const std::vector<ir::ValueId>& operands);

  ir::Function& f_;
  ir::Builder &outside_, &inside_;
  ir::AxisId axis_, rows_;
  /// Where a value comes from: before the loop, an expression inside it, or what an iteration
  /// makes.
  enum class Origin { outside, expression, iteration };
  std::vector<Origin> origins_;  ///< by value
  std::map<ir::ValueId, bool> pure_, may_be_nan_;
  std::map<ir::ValueId, Slope> slopes_;
  std::map<ir::ValueId, Range> ranges_;
  std::map<ir::ValueId, Truth> conditions_;
  std::map<std::pair<ir::ValueId, Rows>, ir::ValueId> copies_;
  std::map<std::pair<double, DType>, ir::ValueId> numbers_;
  ir::ValueId first_row_, last_row_;
};

}  // namespace flashcore
