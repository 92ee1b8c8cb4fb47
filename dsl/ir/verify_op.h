// The part of verify() that looks at one op: what it names, its attributes, its operands and
// results.
#pragma once

#include <string>

#include "dsl/ir/function.h"

namespace flashcore::ir {

/// Throws SpecError where the op breaks a rule. Its operands are known to be there.
void verify_op(const Function& f, const Op& op);

/// "invalid operation: %1 = ...", with the op's place.
[[noreturn]] void refuse_op(const Function& f, const Op& op, std::string why, std::string fix);

}  // namespace flashcore::ir
