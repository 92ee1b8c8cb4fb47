// How large what a score expression gives can be, whatever the scores and the tensors it reads.
#pragma once

#include "dsl/expression.h"

namespace flashcore {

/// Whether no finite result has a magnitude beyond `largest`: a cap is, a bias is not known to be.
/// Minus infinity, which hides a score, is no such result. Throws SpecError like `apply`.
bool is_within(const Score& score, double largest);

}  // namespace flashcore
