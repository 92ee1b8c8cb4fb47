// A condition cut at its `and`s.
#pragma once

#include <vector>

#include "dsl/ir/function.h"

namespace flashcore {

/// The conditions that all have to hold for a condition to, in its order. One that takes part several
/// times comes once: saying it again adds nothing, and a shared part may double at every level.
std::vector<ir::ValueId> conjuncts_of(const ir::Function& f, ir::ValueId condition);

}  // namespace flashcore
