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

#include <functional>

#include "dsl/ir/builder.h"
#include "dsl/ir/function.h"

namespace flashcore {

/// Two conditions, i1 over the loop's axis or scalar; what is known already is a constant.
struct Truth {
  ir::ValueId maybe, surely;
};

/// What tells it of conditions in a loop. `outside` builds before the loop, where extremes over rows
/// belong; `inside` builds in a region that knows the positions of one tile of the loop's axis.
std::function<Truth(ir::ValueId)> truth_over_rows(ir::Builder& outside, ir::Builder& inside,
                                                  const ir::Op& loop);

}  // namespace flashcore
