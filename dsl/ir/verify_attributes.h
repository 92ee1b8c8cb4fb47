// The part of verify() that looks at the attributes of an op: which it may have, and whether what they
// name exists.
#pragma once

#include "dsl/ir/function.h"

namespace flashcore::ir {

/// Throws SpecError where the op has an attribute of other operations, or names nothing.
void verify_attributes(const Function& f, const Op& op);

/// Whether an issue puts values of the program, rather than a tile of a tensor, into its channel.
[[nodiscard]] bool issues_values(const Function& f, const Op& op);

}  // namespace flashcore::ir
