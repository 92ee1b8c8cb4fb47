// Whether a program's outputs are the same whatever number a loop's sums were taken relative to.
//
// A softmax carries m and l, the sum of exp2(x - m). Had it used m + D for m, l would be l /
// exp2(D), and so would be what else is summed up relative to m. Then out / l is what it was, and
// so is m + log2(l). The analysis pushes "times E" and "plus D" through what follows the loop, and
// looks at what is stored.
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
