// Whether a program's outputs are independent of the number relative to which a loop's sums are
// taken.
//
// A softmax carries m and l, the sum of exp2(x - m). If it used m + D instead of m, l would be
// divided by exp2(D), and so would every other sum relative to m. But out / l would stay the same,
// and so would m + log2(l). The analysis propagates "times E" and "plus D" through the operations
// behind the loop, and checks the values that are stored.
#pragma once

#include "codegen/analysis/rescaled_sums.h"
#include "dsl/ir/function.h"

namespace flashcore {

/// `carried` is what the loop of the body's op at `position` carries; all that varies with the
/// maximum `extreme` follows it with one slope. Stores of probes are left out: they show what was
/// computed.
bool is_reference_free(const ir::Function& f, std::size_t position, const CarriedValues& carried,
                       std::size_t extreme);

}  // namespace flashcore
