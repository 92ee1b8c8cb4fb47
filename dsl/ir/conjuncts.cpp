#include "dsl/ir/conjuncts.h"

#include <set>

namespace flashcore {

using namespace ir;

namespace {

void collect(const Function& f, ValueId condition, std::set<ValueId>& seen,
             std::vector<ValueId>& conjuncts) {
  if (!seen.insert(condition).second) return;
  const Op* op = f.definition(condition);
  if (!op || op->code != OpCode::logical_and) {
    conjuncts.push_back(condition);
    return;
  }
  for (const ValueId operand : op->operands) collect(f, operand, seen, conjuncts);
}

}  // namespace

std::vector<ValueId> conjuncts_of(const Function& f, ValueId condition) {
  std::set<ValueId> seen;
  std::vector<ValueId> conjuncts;
  collect(f, condition, seen, conjuncts);
  return conjuncts;
}

}  // namespace flashcore
