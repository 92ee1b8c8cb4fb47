#include "codegen/analysis/column_steps.h"

#include <algorithm>
#include <map>

namespace flashcore {

using namespace ir;

namespace {

/// A tile of rows and columns whose elements lie in registers.
bool in_registers(const Function& f, ValueId value) {
  return f[value].home.space == Space::registers && f[value].home.axes.size() == 2;
}

/// A tanh, and what joins one: the `where` that keeps what a mask has hidden, a product and a sum,
/// an exponential.
bool is_of_tanh(const Function& f, ValueId value) {
  const Op* op = f.definition(value);
  if (!op) return false;
  switch (op->code) {
    case OpCode::tanh:
      return true;
    case OpCode::where:
      return is_of_tanh(f, op->operands[1]);
    case OpCode::fma:
      return is_of_tanh(f, op->operands[0]) || is_of_tanh(f, op->operands[1]);
    case OpCode::exp2:
      return is_of_tanh(f, op->operands[0]);
    default:
      return false;
  }
}

}  // namespace

ColumnWork column_work(const Function& f, const Op& op) {
  if (op.results.size() != 1) return ColumnWork::none;
  const ValueId result = op.results[0];
  const bool elementwise = kind_of(op.code) == OpKind::elementwise;
  if (elementwise && f[result].home.space == Space::operand && in_registers(f, op.operands[0]))
    return ColumnWork::packing;
  // A tanh looks at all elements of a warp first, and so does what joins it; a lazy scaling looks
  // at all factors.
  const auto of_tanh = [&](ValueId value) { return is_of_tanh(f, value); };
  if (op.lazy || of_tanh(result) || std::ranges::any_of(op.operands, of_tanh))
    return ColumnWork::none;
  if (elementwise) return in_registers(f, result) ? ColumnWork::elements : ColumnWork::none;
  if (kind_of(op.code) != OpKind::reduction) return ColumnWork::none;
  const bool along_columns =
      in_registers(f, op.operands[0]) && op.axis == f[op.operands[0]].type.axes[1];
  return along_columns ? ColumnWork::reduction : ColumnWork::none;
}

std::vector<ColumnStep> column_steps(const Function& f, BlockId block,
                                     const std::vector<std::size_t>& positions) {
  const auto& ops = f[block].ops;
  std::vector<ColumnStep> steps;
  std::map<ValueId, int> levels;
  const auto is_exponential = [&](ValueId value) {
    return f.definition(value)->code == OpCode::exp2;
  };
  for (std::size_t at : positions) {
    const Op& op = f[ops[at]];
    const ColumnWork work = column_work(f, op);
    int level = steps.empty() ? 0 : steps.back().level;
    for (ValueId operand : op.operands)
      if (const auto made = levels.find(operand); made != levels.end())
        level = std::max(
            level, made->second + (op.code == OpCode::exp2 || is_exponential(operand) ? 1 : 0));
    levels[op.results[0]] = level;
    const auto one_nest = [&](ValueId other) {
      return f[other].type.axes == f[op.results[0]].type.axes &&
             f[other].home == f[op.results[0]].home;
    };
    const bool joins = work == ColumnWork::elements && !steps.empty() &&
                       steps.back().work == work && steps.back().level == level &&
                       one_nest(f[ops[steps.back().positions.back()]].results[0]);
    if (!joins) steps.push_back({work, {}, level});
    steps.back().positions.push_back(at);
  }
  return steps;
}

}  // namespace flashcore
