// Nests of elementwise operations, seen from outside.
#pragma once

#include "dsl/ir/function.h"

namespace flashcore::ir {

/// The op that computes a value: of what a nest gives the one inside; null for an argument.
inline const Op* computation_of(const Function& f, ValueId value) {
  const Op* op = f.definition(value);
  while (op && op->code == OpCode::nest) {
    std::size_t i = 0;
    while (op->results[i] != value) ++i;
    value = f[f[op->body].ops.back()].operands[i];
    op = f.definition(value);
  }
  return op;
}

}  // namespace flashcore::ir
