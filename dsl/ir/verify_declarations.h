// The part of verify() that looks at what stands above the body.
#pragma once

#include <string_view>

#include "dsl/ir/function.h"

namespace flashcore::ir {

/// Throws SpecError for names declared twice, types that do not exist in memory and lengths that a
/// launch could not know.
void verify_declarations(const Function& f);

/// Words of C++ and CUDA, which no argument of a kernel can have as its name.
bool is_reserved_word(std::string_view name);

}  // namespace flashcore::ir
