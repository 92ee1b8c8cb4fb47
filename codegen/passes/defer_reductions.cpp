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

/// The reduce_sum that `next = carried * anything + sum` or `next = carried + sum` adds; two
/// where a mask's guard chooses; or none.
std::vector<Op*> added_sums(Function& f, const std::vector<int>& uses, ValueId next,
                            ValueId carried) {
  const std::optional<CarriedSum> carries = carried_sum(f, next, carried);
  if (!carries || !carries->added || carries->scaled || uses[carried.index] != 1) return {};
  const ValueId sum = carries->added;
  std::vector<ValueId> sums{sum};
  if (const Op* chosen = f.definition(sum); chosen && guard_of(f, *chosen) && uses[sum.index] == 1)
    sums = {chosen->operands[1], chosen->operands[2]};
  std::vector<Op*> found;
  for (ValueId made : sums) {
    if (is_number(f, made, 0)) continue;
    Op* reduction = f.definition(made);
    if (!reduction || reduction->code != OpCode::reduce_sum || uses[made.index] != 1) return {};
    found.push_back(reduction);
  }
  return found;
}

/// The product, cut by warps, of `next = carried * anything + product` or `next = carried +
/// product`, or null. A probe shows a sum and no partial.
Op* added_product(Function& f, const Schedule& schedule, const std::vector<int>& uses, ValueId next,
                  ValueId carried) {
  Op* dot = f.definition(next);
  const std::vector<int> all_uses = count_uses(f);
  if (all_uses[next.index] != 1 || all_uses[carried.index] != 1) return nullptr;
  const std::optional<CarriedSum> sum = carried_sum(f, next, carried);
  const bool apart = sum && sum->scaled && uses[sum->scaled.index] != 1;
  return sum && !sum->added && !apart && cuts_sum(f, *dot, schedule) ? dot : nullptr;
}

/// Readers of the partials read their combination instead.
void combine(Builder b, ValueId partials, AxisId axis) {
  const ValueId total = b.combine_partials(partials, axis, OpCode::reduce_sum);
  b.function()[total].name = b.function()[partials].name;
  replace_uses_behind(b, partials, total);
}

void defer_in_loop(Function& f, const Schedule& schedule, BlockId block, OpId id) {
  const std::vector<int> uses = count_uses_without_probes(f);
  for (const auto& [start, carried, next, result] : carried_by(f, f[id])) {
    if (!is_number(f, start, 0)) continue;     // every partial would count it
    if (f[result].type.is_scalar()) continue;  // all threads have the whole of it
    if (uses[next.index] != 1) continue;
    if (const std::vector<Op*> sums = added_sums(f, uses, next, carried); !sums.empty()) {
      for (Op* sum : sums) sum->scope = ReductionScope::lane;
      combine(behind(f, block, id), result, sums.front()->axis);
    } else if (Op* dot = added_product(f, schedule, uses, next, carried)) {
      dot->scope = ReductionScope::warp;
      combine(behind(f, block, id), result, inner_axis(f, *dot));
    }
  }
}

/// Products that are cut by warps and not deferred: the third operand counts once, so it comes
/// after.
void finish_products(Function& f, const Schedule& schedule) {
  rewrite_all_blocks(f, [&](Builder& b, OpId id) {
    const Op dot = f[id];
    if (dot.code != OpCode::dot || dot.scope != ReductionScope::block ||
        !cuts_sum(f, dot, schedule))
      return;
    f[id].scope = ReductionScope::warp;
    const ValueId sum = dot.results[0], product = replace_result(f, id, "product");
    f[id].operands.resize(2);
    b.go_behind(id);
    ValueId made = b.combine_partials(product, inner_axis(f, dot), OpCode::reduce_sum);
    if (dot.operands.size() == 3) made = b.add(dot.operands[2], made);
    take_place(f, sum, made);
  });
}

}  // namespace

void defer_reductions(Function& f, const PassContext& context) {
  rewrite_inside_out(f, f.body, [&](Builder& b, OpId id) {
    if (f[id].body) defer_in_loop(f, context.schedule, b.block(), id);
  });
  finish_products(f, context.schedule);
}

}  // namespace flashcore
