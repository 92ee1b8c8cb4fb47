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

class SumRewriter {
 public:
  SumRewriter(Function& f, const PassContext& context) : f_(f), context_(context) {}

  void run() {
    for (OpId id : std::vector(f_[f_.body].ops)) {
      if (f_[id].code != OpCode::loop) continue;
      for (std::size_t i = 0; i < f_[id].results.size(); ++i)
        if (const std::optional<Sum> sum = find_sum(f_[id], i)) {
          if (reaches_f32_output(f_, f_[id].results[i])) {
            why_not_ =
                "the sum decides what an f32 output holds, and its rounding would show there";
            continue;
          }
          replace(id, i, *sum);
          why_not_.clear();
          context_.note_numerics(
              "a product sums up the softmax weights, rounded as it takes them (sums_by_products)");
          break;
        }
    }
    if (!why_not_.empty()) context_.note_refusal("sums_by_products = true", why_not_);
    remove_dead_ops(f_);
  }

 private:
  struct Sum {
    ValueId rounded;  ///< the left operand made of what is added up
    ValueId factor;   ///< what scales the sum in an iteration, if anything does
    OpId product;     ///< the product that the operand is for
  };

  [[nodiscard]] std::optional<Sum> find_sum(const Op& loop, std::size_t i) const {
    const ValueId carried = f_[loop.body].arguments[i + 1];
    const ValueId next = last_of(f_, loop.body).operands[i];
    const std::optional<CarriedSum> carries = carried_sum(f_, next, carried);
    // What a probe looks at stays; what is merely probed beside it does not matter.
    const std::vector<int> uses = count_uses(f_);
    if (!is_number(f_, initial_of(loop, i), 0) || !carries || uses[carried.index] != 1 ||
        uses[next.index] != 1)
      return std::nullopt;
    const ValueId total = on_full_tiles(f_, carries->added);
    const Op* reduction = definition_as(f_, total, OpCode::reduce_sum);
    if (!reduction || uses[carries->added.index] != 1 || uses[total.index] != 1)
      return std::nullopt;
    for (OpId id : f_[loop.body].ops) {
      const Op& dot = f_[id];
      if (dot.code != OpCode::dot) continue;
      const Op* cast = definition_as(f_, dot.operands[0], OpCode::cast);
      if (cast && cast->operands[0] == reduction->operands[0] &&
          is_half(f_[dot.operands[0]].type.dtype) &&
          f_[dot.operands[0]].type.axes[1] == reduction->axis)
        return Sum{dot.operands[0], carries->factor, id};
    }
    return std::nullopt;
  }

  void replace(OpId loop, std::size_t i, const Sum& sum) {
    constexpr int columns = 8;  // the fewest that a product makes
    const TileType type = f_[f_[loop].results[i]].type;
    const AxisId terms = f_[sum.rounded].type.axes[1];
    std::string name = "ones";
    while (f_.find_axis(name)) name += "_";
    const AxisId ones = f_.add_axis(
        {.name = name, .kind = AxisKind::whole, .extent = Extent(columns), .tile = columns});
    const DType dtype = f_[sum.rounded].type.dtype;
    const BufferId buffer =
        f_.add_buffer({unused_buffer_name(f_, "ones"), dtype, columns, f_[terms].tile, 1});

    Builder front = before(f_, f_.body, loop);
    const ValueId one = front.constant(1, dtype, {ones, terms});
    const ValueId tile = convert_to(front, one, buffer, "ones");
    const ValueId start = front.constant(0, DType::f32, {type.axes[0], ones});
    const std::string label = f_[f_[loop].results[i]].name;
    const ValueId carried = add_carried(f_, loop, start, label.empty() ? "sums" : label + "s");
    Builder b = before(f_, f_[loop].body, sum.product);
    const ValueId view = b.transpose(tile);
    const ValueId scaled = sum.factor ? b.mul(carried, sum.factor) : carried;
    const ValueId next = b.dot(sum.rounded, view, scaled);
    f_.definition(next)->instruction = f_[sum.product].instruction;
    yield_of(f_, f_[loop]).operands.push_back(next);
    const ValueId total =
        behind(f_, f_.body, loop).reduce(OpCode::reduce_max, f_[loop].results.back(), ones);
    f_[total].name = label;
    replace_uses(f_, f_[loop].results[i], total);
    drop_carried(f_, loop, i);
  }

  Function& f_;
  const PassContext& context_;
  std::string why_not_ = "no loop sums up what a product takes as its left operand";
};

}  // namespace

void sum_by_products(Function& f, const PassContext& context) {
  if (context.schedule.sums_by_products) SumRewriter(f, context).run();
}

}  // namespace flashcore
