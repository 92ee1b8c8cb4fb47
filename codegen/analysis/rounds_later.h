// Casts that need not round, since whoever reads them does.
#pragma once

#include "dsl/ir/function.h"

namespace flashcore {

/// Whether every reader of a 16-bit value of a nest rounds what it reads: stores and conversions to
/// shared memory pack pairs of floats.
bool rounds_later(const ir::Function& f, const ir::Op& nest, ir::ValueId value);

}  // namespace flashcore
