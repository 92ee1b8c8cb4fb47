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
    for (std::size_t at = 0; at < f_[f_.body].ops.size(); ++at) {
      const OpId id = f_[f_.body].ops[at];
      if (f_[id].code != OpCode::loop) continue;
      for (std::size_t i = 0; i < f_[id].results.size(); ++i)
        if (const std::optional<Sum> sum = find_sum(f_[id], i)) {
          if (reaches_f32_output(f_, f_[id].results[i])) {
            why_not_ =
                "the sum decides what an f32 output holds, and its rounding would show there";
            continue;
          }
          at += replace(at, i, *sum);
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
    const Op* reduction = f_.definition(total);
    if (!reduction || reduction->code != OpCode::reduce_sum || uses[carries->added.index] != 1 ||
        uses[total.index] != 1)
      return std::nullopt;
    for (OpId id : f_[loop.body].ops) {
      const Op& dot = f_[id];
      if (dot.code != OpCode::dot) continue;
      const Op* cast = f_.definition(dot.operands[0]);
      if (cast && cast->code == OpCode::cast && cast->operands[0] == reduction->operands[0] &&
          is_half(f_[dot.operands[0]].type.dtype) &&
          f_[dot.operands[0]].type.axes[1] == reduction->axis)
        return Sum{dot.operands[0], carries->factor, id};
    }
    return std::nullopt;
  }

  std::size_t replace(std::size_t position, std::size_t i, const Sum& sum) {
    constexpr int columns = 8;  // the fewest that a product makes
    const OpId loop = f_[f_.body].ops[position];
    const TileType type = f_[f_[loop].results[i]].type;
    const AxisId terms = f_[sum.rounded].type.axes[1];
    std::string name = "ones";
    while (f_.find_axis(name)) name += "_";
    const AxisId ones = f_.add_axis(
        {.name = name, .kind = AxisKind::whole, .extent = Extent(columns), .tile = columns});
    const DType dtype = f_[sum.rounded].type.dtype;
    const BufferId buffer =
        f_.add_buffer({unused_buffer_name(f_, "ones"), dtype, columns, f_[terms].tile, 1});

    ValueId tile, start;
    const Location where = f_[loop].where;
    const std::size_t before = insert_before(f_, f_.body, position, where, [&](Builder& b) {
      const ValueId one = b.constant(1, dtype, {ones, terms});
      tile = make(b, {.code = OpCode::convert, .operands = {one}, .buffer = buffer},
                  {dtype, {ones, terms}});
      start = b.constant(0, DType::f32, {type.axes[0], ones});
    });
    f_[tile].name = "ones";
    f_[tile].layout.space = Space::shared;
    const std::string label = f_[f_[loop].results[i]].name;
    const ValueId carried = add_carried(f_, loop, start, label.empty() ? "sums" : label + "s");
    const BlockId body = f_[loop].body;
    ValueId next;
    insert_before(f_, body, position_of(f_, body, sum.product), where, [&](Builder& b) {
      const ValueId view = b.transpose(tile);
      f_[view].layout.space = Space::shared;
      const ValueId scaled = sum.factor ? b.mul(carried, sum.factor) : carried;
      next = b.dot(sum.rounded, view, scaled);
      f_.definition(next)->instruction = f_[sum.product].instruction;
    });
    yield_of(f_, f_[loop]).operands.push_back(next);
    const ValueId old = f_[loop].results[i], all = f_[loop].results.back();
    insert_before(f_, f_.body, position + before + 1, where, [&](Builder& b) {
      const ValueId total = b.reduce(OpCode::reduce_max, all, ones);
      f_[total].name = label;
      replace_uses(f_, old, total);
    });
    drop_carried(f_, loop, i);
    return before + 1;
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
