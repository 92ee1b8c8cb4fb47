// Which register tiles are needed at the same time, and so cannot lie in one array.
#pragma once

#include <set>
#include <vector>

#include "dsl/ir/function.h"

namespace flashcore {

/// Whether a value is held in an array of registers: a tile there, but for what a nest or an
/// expression makes one element at a time.
bool is_held(const ir::Function& f, ir::ValueId value);

/// By value, those that hold something else while the value is needed. What an op may make in the
/// place of what it reads is not among them: the sum that a product adds to, an operand that a nest
/// reads no more once it has made an element of the result, a value that an if or a loop hands on.
std::vector<std::set<ir::ValueId>> find_interference(const ir::Function& f);

}  // namespace flashcore
