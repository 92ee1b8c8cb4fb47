// What a tile that a mask empties means for the loop that visits it.
#pragma once

#include "codegen/analysis/neutral.h"
#include "dsl/ir/function.h"

namespace flashcore {

/// Whether the loop gives back what it carries, and writes nothing but probes, when `mask`, a
/// `where` of its region, takes its neutral value everywhere: then the tile need not be visited.
bool may_skip(const ir::Function& f, const ir::Op& loop, const ir::Op& mask);

/// The number that every element of `value` has on tiles of the loop that are not visited because a
/// mask empties them. Nothing if there is no such number, or masks disagree.
std::optional<double> value_if_skipped(const ir::Function& f, const ir::Op& loop,
                                       ir::ValueId value);

}  // namespace flashcore
