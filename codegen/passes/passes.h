// The functions of all passes (passes.def).
#pragma once

#include "codegen/pass.h"

namespace flashcore {

#define FC_PASS(name, why_here) PassFunction name;
#include "codegen/passes/passes.def"
#undef FC_PASS

}  // namespace flashcore
