// Conditions on positions in words that their author would use: `cols <= rows + length(cols)`.
#pragma once

#include <string>

#include "codegen/analysis/affine.h"
#include "dsl/ir/function.h"

namespace flashcore {

/// A value as an expression of positions, lengths, parameters and tensors. Positions and lengths that
/// have a name go by it.
std::string expression_text(const ir::Function& f, ir::ValueId value);

/// A linear term that is at least 0 where it holds, solved for the position along `axis`.
std::string bound_text(const ir::Function& f, const AffineForm& term, ir::AxisId axis);

}  // namespace flashcore
