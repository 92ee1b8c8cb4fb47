// A softmax carries l = l * d + sum(p) besides out = out * d + p v: one addition an element, on
// units that are the bottleneck where head_dim is small. The tensor core can add up p as it
// multiplies it:
//
//   loop carry l, out { ... l' = l * d + reduce_sum(p) ; out' = dot cast(p), v, out * d } becomes
//   loop carry sums, out { ... sums' = dot cast(p), ones, sums * d ; out' = ... }
//   l = reduce_max sums                                    whose columns are all the same
//
// `ones` is a tile of eight columns of ones in shared memory. The sum is then that of the rounded
// p, and out is divided by exactly the weights that it was computed with. A sum that reaches an f32
// output is left as it is: there the rounding would show.
#include <optional>
#include <string>
#include <vector>

#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

void sum_by_product(Function& f, OpId loop, std::size_t i, const SumOfOperand& sum) {
  constexpr int columns = 8;  // the fewest that a product makes
  const TileType type = f[f[loop].results[i]].type;
  const AxisId terms = f[sum.rounded].type.axes[1];
  std::string name = "ones";
  while (f.find_axis(name)) name += "_";
  const AxisId ones = f.add_axis(
      {.name = name, .kind = AxisKind::whole, .extent = Extent(columns), .tile = columns});
  const DType dtype = f[sum.rounded].type.dtype;
  const BufferId buffer =
      f.add_buffer({unused_buffer_name(f, "ones"), dtype, columns, f[terms].tile, 1});

  Builder front = before(f, f.body, loop);
  const ValueId one = front.constant(1, dtype, {ones, terms});
  const ValueId tile = convert_to(front, one, buffer, "ones");
  const ValueId start = front.constant(0, DType::f32, {type.axes[0], ones});
  const std::string label = f[f[loop].results[i]].name;
  const ValueId carried = add_carried(f, loop, start, label.empty() ? "sums" : label + "s");
  Builder b = before(f, f[loop].body, sum.product);
  const ValueId view = b.transpose(tile);
  const ValueId scaled = sum.factor ? b.mul(carried, sum.factor) : carried;
  const ValueId next = b.dot(sum.rounded, view, scaled);
  f.definition(next)->instruction = f[sum.product].instruction;
  last_of(f, f[loop].body).operands.push_back(next);
  const ValueId total =
      behind(f, f.body, loop).reduce(OpCode::reduce_max, f[loop].results.back(), ones);
  replace_uses(f, f[loop].results[i], named(f, total, label));
  drop_carried(f, loop, i);
}

}  // namespace

void sum_by_products(Function& f, const PassContext& context) {
  if (!context.schedule.sums_by_products) return;
  std::string why_not = "no loop sums up what a product takes as its left operand";
  for (OpId id : std::vector(f[f.body].ops)) {
    if (f[id].code != OpCode::loop) continue;
    for (std::size_t i = 0; i < f[id].results.size(); ++i) {
      // What a probe looks at stays; what is merely probed beside it does not matter.
      const std::vector<int> uses = count_uses(f);
      const std::optional<SumOfOperand> sum = sum_of_operand(f, f[id], i, uses);
      if (!sum || uses[carried_by(f, f[id])[i].next.index] != 1) continue;
      if (reaches_f32_output(f, f[id].results[i])) {
        why_not = "the sum decides what an f32 output holds, and its rounding would show there";
        continue;
      }
      sum_by_product(f, id, i, *sum);
      why_not.clear();
      context.note_numerics(
          "a product sums up the softmax weights, rounded as it takes them (sums_by_products)");
      break;
    }
  }
  if (!why_not.empty()) context.note_refusal("sums_by_products = true", why_not);
  remove_dead_ops(f);
}

}  // namespace flashcore
