// What a tile in which a mask hides everything changes in the loop that visits it.
#pragma once

#include "codegen/analysis/neutral.h"
#include "dsl/ir/function.h"

namespace flashcore {

/// Whether an iteration leaves all carried values as they are, and writes nothing but probes, if
/// `mask`, a `where` of the loop's region, takes its neutral value everywhere: then the loop may
/// skip the tile.
bool may_skip(const ir::Function& f, const ir::Op& loop, const ir::Op& mask);

/// The number that every element of `value` has on tiles of the loop that are not visited because a
/// mask empties them. Nothing if there is no such number, or masks disagree.
std::optional<double> value_if_skipped(const ir::Function& f, const ir::Op& loop,
                                       ir::ValueId value);

}  // namespace flashcore
