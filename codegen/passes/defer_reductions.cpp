// A softmax carries l = l * decay + sum(p). A row of p is spread over several lanes, whose partial
// sums could be combined in every iteration. But the loop only scales l by a row value and adds to
// it, which each lane can do with its own partial. So the partials stay separate during the loop
// and are combined once behind it.
//
// The same holds for out = out * decay + p v when the columns of p are spread over warps: each warp
// multiplies the keys that it has, and carries its partial of out. The partials of such a product
// that no loop carries are combined right behind the product.
#include "codegen/analysis/tile_guard.h"
#include "codegen/analysis/warp_partition.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

class Deferral {
 public:
  Deferral(Function& f, const Schedule& schedule) : f_(f), schedule_(schedule) {}

  void run() {
    rewrite_inside_out(f_, f_.body, [&](Builder& b, OpId id) {
      if (f_[id].body) defer_in_loop(b.block(), id);
    });
    finish_products();
  }

 private:
  /// The reduce_sum that `next = carried * anything + sum` or `next = carried + sum` adds; two
  /// where a mask's guard chooses; or none.
  std::vector<Op*> added_sums(ValueId next, ValueId carried) {
    const std::optional<CarriedSum> carries = carried_sum(f_, next, carried);
    if (!carries || !carries->added || carries->scaled || uses_[carried.index] != 1) return {};
    const ValueId sum = carries->added;
    std::vector<ValueId> sums{sum};
    if (const Op* chosen = f_.definition(sum);
        chosen && guard_of(f_, *chosen) && uses_[sum.index] == 1)
      sums = {chosen->operands[1], chosen->operands[2]};
    std::vector<Op*> found;
    for (ValueId made : sums) {
      if (is_number(f_, made, 0)) continue;
      Op* reduction = f_.definition(made);
      if (!reduction || reduction->code != OpCode::reduce_sum || uses_[made.index] != 1) return {};
      found.push_back(reduction);
    }
    return found;
  }

  /// The product, cut by warps, of `next = carried * anything + product` or `next = carried +
  /// product`, or null. A probe shows a sum and no partial.
  Op* added_product(ValueId next, ValueId carried) {
    Op* dot = f_.definition(next);
    const std::vector<int> all_uses = count_uses(f_);
    if (all_uses[next.index] != 1 || all_uses[carried.index] != 1) return nullptr;
    const std::optional<CarriedSum> sum = carried_sum(f_, next, carried);
    const bool apart = sum && sum->scaled && uses_[sum->scaled.index] != 1;
    return sum && !sum->added && !apart && cuts_sum(f_, *dot, schedule_) ? dot : nullptr;
  }

  void defer_in_loop(BlockId block, OpId id) {
    uses_ = count_uses_without_probes(f_);
    for (const auto& [start, carried, next, result] : carried_by(f_, f_[id])) {
      if (!is_number(f_, start, 0)) continue;     // every partial would count it
      if (f_[result].type.is_scalar()) continue;  // all threads have the whole of it
      if (uses_[next.index] != 1) continue;
      if (const std::vector<Op*> sums = added_sums(next, carried); !sums.empty()) {
        for (Op* sum : sums) sum->scope = ReductionScope::lane;
        combine(behind(f_, block, id), result, sums.front()->axis);
      } else if (Op* dot = added_product(next, carried)) {
        dot->scope = ReductionScope::warp;
        combine(behind(f_, block, id), result, inner_axis(*dot));
      }
    }
  }

  [[nodiscard]] AxisId inner_axis(const Op& dot) const { return f_[dot.operands[0]].type.axes[1]; }

  /// Readers of the partials read their combination instead.
  void combine(Builder b, ValueId partials, AxisId axis) {
    const ValueId total = b.combine_partials(partials, axis, OpCode::reduce_sum);
    f_[total].name = f_[partials].name;
    replace_uses_behind(b, partials, total);
  }

  /// Products that are cut by warps and not deferred: the third operand counts once, so it comes
  /// after.
  void finish_products() {
    rewrite_all_blocks(f_, [&](Builder& b, OpId id) {
      const Op dot = f_[id];
      if (dot.code != OpCode::dot || dot.scope != ReductionScope::block ||
          !cuts_sum(f_, dot, schedule_))
        return;
      f_[id].scope = ReductionScope::warp;
      const ValueId sum = dot.results[0], product = replace_result(f_, id, "product");
      f_[id].operands.resize(2);
      b.go_behind(id);
      ValueId made = b.combine_partials(product, inner_axis(dot), OpCode::reduce_sum);
      if (dot.operands.size() == 3) made = b.add(dot.operands[2], made);
      take_place(f_, sum, made);
    });
  }

  Function& f_;
  const Schedule& schedule_;
  std::vector<int> uses_;
};

}  // namespace

void defer_reductions(Function& f, const PassContext& context) {
  Deferral(f, context.schedule).run();
}

}  // namespace flashcore
