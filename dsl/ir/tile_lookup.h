// Lookups that read a tile of a tensor, as a load does: neighbouring columns of rows that follow each
// other. What brings whole tiles may then bring what they read.
#pragma once

#include "dsl/ir/function.h"

namespace flashcore {

/// Whether a `gather` reads a 16-bit element or a condition for every row and column of a tile, from a
/// tensor whose rows begin at multiples of 16 bytes (Tensor::aligned_rows): rows along one dimension,
/// columns along the last one, each from some position on, and scalars along all others. The columns begin at
/// a multiple of 16 bytes: the copy engine takes no box that begins elsewhere.
bool looks_up_tile(const ir::Function& f, const ir::Op& op);

}  // namespace flashcore
