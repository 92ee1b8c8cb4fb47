// Which register tiles are needed at the same time, and so cannot lie in one array.
#pragma once

#include <set>
#include <vector>

#include "dsl/ir/function.h"

namespace flashcore {

/// Whether a value is held in an array of registers: a tile there, but for what a nest or an
/// expression makes one element at a time.
bool is_held(const ir::Function& f, ir::ValueId value);

/// Whether a value is a tile of conditions from shared memory, which a thread holds as bits: no others
/// can be put in their place.
bool is_condition_tile(const ir::Function& f, ir::ValueId value);

/// For each value, the values that cannot share its array, because both are needed at the same
/// time. An operand is not one of them where the result may overwrite it element by element: the sum that
/// a product adds to, an operand of a nest that no later operation of the nest reads, a value that
/// an if or a loop yields.
std::vector<std::set<ir::ValueId>> find_interference(const ir::Function& f);

}  // namespace flashcore
