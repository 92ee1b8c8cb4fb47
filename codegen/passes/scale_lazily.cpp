// The scaling of a carried sum that a warp leaves out where all its rows have the factor one, as
// those of a softmax whose maximum has not grown:
//
//   %none = all_lanes (eq %factor, 1)
//   %scaled = if %none { yield %sum } else { yield mul %sum, %factor }
#include "codegen/passes/products_in_flight.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {

using namespace ir;

ValueId append_lazy_scaling(Function& f, BlockId target, OpId scaling) {
  const Op op = f[scaling];
  const std::size_t k = f[op.operands[0]].type.axes.size() == 1 ? 0 : 1;
  const ValueId factor = op.operands[k], scaled = op.results[0];
  if (op.code != OpCode::mul || f[factor].type.axes.size() != 1) {
    f[target].ops.push_back(scaling);
    return scaled;
  }
  Op choice{.code = OpCode::if_, .where = op.where};
  choice.body = f.add_block();
  choice.otherwise = f.add_block();
  append_op(f, choice.body, {.code = OpCode::yield, .operands = {op.operands[1 - k]}});
  f[choice.otherwise].ops.push_back(scaling);
  append_op(f, choice.otherwise, {.code = OpCode::yield, .operands = {scaled}});
  insert_before(f, target, f[target].ops.size(), op.where, [&](Builder& b) {
    const ValueId one = b.elementwise(OpCode::eq, {factor, b.constant(1, DType::f32)});
    f[one].layout = f[factor].layout;
    choice.operands = {make(b, {.code = OpCode::all_lanes, .operands = {one}}, {DType::i1, {}})};
    f[choice.operands[0]].layout.space = Space::uniform;
  });
  return append_like(f, target, std::move(choice), {scaled})[0];
}

}  // namespace flashcore
