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
  Builder b(f, target);
  b.at(op.where);
  const ValueId one = b.elementwise(OpCode::eq, {factor, b.constant(1, DType::f32)});
  f[one].layout = f[factor].layout;
  const ValueId none = b.make({.code = OpCode::all_lanes, .operands = {one}}, {DType::i1, {}});
  return build_if(
      b, none, [&](Builder&) { return std::vector{op.operands[1 - k]}; },
      [&](Builder& in) {
        in.place(scaling);
        return std::vector{scaled};
      },
      {scaled})[0];
}

}  // namespace flashcore
