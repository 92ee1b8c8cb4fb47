// Checks a whole function: what the builder cannot see from one op, and what a pass may have
// broken.
#pragma once

#include <string_view>

#include "dsl/ir/function.h"

namespace flashcore::ir {

/// Throws SpecError with the op, its place and the rule it breaks.
void verify(const Function& f);

/// The same between passes, where a broken function is FlashCore's fault: throws InternalError.
void verify_after(const Function& f, std::string_view pass);

}  // namespace flashcore::ir
