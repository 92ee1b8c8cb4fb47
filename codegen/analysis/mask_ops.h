// The operations of a block whose results only one mask reads: a tile that the mask does not cut
// does not need them.
#pragma once

#include <vector>

#include "dsl/ir/function.h"

namespace flashcore {

/// The ops of a block, in order, that compute something in registers which only the mask (a
/// `where`) and such ops read; what the mask hides a part of is none of them.
std::vector<ir::OpId> ops_of_mask(const ir::Function& f, ir::BlockId block, ir::OpId mask);

}  // namespace flashcore
