// What a kernel is asked for by before any code is generated.
#pragma once

#include <string>

#include "dsl/program.h"
#include "dsl/schedule.h"
#include "dsl/target.h"

namespace flashcore {

/// 64 hexadecimal digits that tell program, schedule, target and code generation apart: equal ones
/// generate the same code. BLAKE2b, so that nobody can have made two that are equal.
std::string request_of(const Program& program, const Schedule& schedule, const Target& target);

}  // namespace flashcore
