// The part of verify() that looks at what stands above the body.
#pragma once

#include "dsl/ir/function.h"

namespace flashcore::ir {

/// Throws SpecError for names declared twice, types that do not exist in memory and lengths that a
/// launch could not know.
void verify_declarations(const Function& f);

}  // namespace flashcore::ir
