// The text of expressions, both ways.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "dsl/tile.h"

namespace flashcore {

/// Appends what the text says to the builder. `names` are the values and `tensors` the gathered
/// inputs it may read. Throws SpecError with the place in the text.
Tile read_expression(ProgramBuilder& builder, std::string_view text,
                     const std::map<std::string, Tile, std::less<>>& names,
                     const std::map<std::string, Tensor, std::less<>>& tensors);

/// The text of a scalar value whose operands lead to parameters, which stand under their names.
/// Values used more than once are named.
std::string write_expression(const ir::Function& f, ir::ValueId value);

}  // namespace flashcore
