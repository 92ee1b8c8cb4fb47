#include "codegen/passes/copy_ops.h"

#include <utility>
#include <vector>

#include "codegen/passes/rewrite.h"

namespace flashcore {

using namespace ir;

OpId OpCopier::copy(OpId source) {
  Op op = f_[source];
  for_each_use(op, [&](ValueId& v) { v = renamed(v); });
  if (op.body) op.body = copy_region(op.body);
  if (op.otherwise) op.otherwise = copy_region(op.otherwise);
  for (ValueId& result : op.results) result = copy_value(result);
  const OpId copied(f_.ops.size());
  for (ValueId result : op.results) f_[result].definition = copied;
  f_.ops.push_back(std::move(op));
  return copied;
}

OpId OpCopier::copy(Builder& b, OpId source) {
  const OpId copied = copy(source);
  b.place(copied);
  return copied;
}

BlockId OpCopier::copy_region(BlockId source) {
  const BlockId target = f_.add_block();
  for (ValueId argument : std::vector(f_[source].arguments)) {
    const ValueId copied = copy_value(argument);
    f_[target].arguments.push_back(copied);
  }
  for (OpId id : std::vector(f_[source].ops)) {
    const OpId copied = copy(id);
    f_[target].ops.push_back(copied);
  }
  return target;
}

ValueId OpCopier::copy_value(ValueId value) { return names_[value] = add_value_like(f_, value); }

ValueId OpCopier::renamed(ValueId value) const {
  const auto found = names_.find(value);
  return found == names_.end() ? value : found->second;
}

}  // namespace flashcore
