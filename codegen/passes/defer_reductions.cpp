// A softmax carries l = l * decay + sum(p): the sum over the lanes that share a row could be taken every
// round, but all that happens to it is scaling by a row value and adding, which each lane can do with
// its own share. So the shares stay apart during the loop and meet once after it.
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

/// The reduce_sum that `next = carried * anything + sum` or `next = carried + sum` adds, or null.
Op* added_sum(Function& f, ValueId next, ValueId carried, const std::vector<int>& uses) {
  const Op* op = f.definition(next);
  if (!op || uses[carried.index] != 1) return nullptr;
  ValueId sum;
  if (op->code == OpCode::fma && (op->operands[0] == carried || op->operands[1] == carried))
    sum = op->operands[2];
  else if (op->code == OpCode::add && op->operands[0] == carried)
    sum = op->operands[1];
  else if (op->code == OpCode::add && op->operands[1] == carried)
    sum = op->operands[0];
  if (!sum || uses[sum.index] != 1) return nullptr;
  Op* reduction = f.definition(sum);
  return reduction && reduction->code == OpCode::reduce_sum ? reduction : nullptr;
}

void defer_in_loop(Function& f, BlockId block, std::size_t position) {
  const OpId id = f[block].ops[position];
  const Op loop = f[id];
  const std::vector<int> uses = count_uses_without_probes(f);
  for (std::size_t i = 0; i < loop.results.size(); ++i) {
    const double* start = constant_of(f, loop.operands[static_cast<std::size_t>(loop.bounds) + i]);
    if (!start || *start != 0) continue;  // every lane would count it
    const ValueId carried = f[loop.body].arguments[i + 1];
    const ValueId next = yield_of(f, loop).operands[i];
    Op* reduction = added_sum(f, next, carried, uses);
    if (!reduction || uses[next.index] != 1) continue;
    reduction->scope = ReductionScope::lane;
    const AxisId axis = reduction->axis;
    // Rename first: the new op is the one reader of the loop's own result.
    const ValueId shares = loop.results[i], total = f.add_value(f[shares].type, f[shares].name);
    replace_uses(f, shares, total);
    insert_before(f, block, position + 1, loop.where, [&](Builder& b) {
      const ValueId made = b.combine_lanes(shares, axis, OpCode::reduce_sum);
      f[total].definition = f[made].definition;
      f.definition(made)->results[0] = total;
    });
  }
}

void defer_in_block(Function& f, BlockId block) {
  for (std::size_t i = 0; i < f[block].ops.size(); ++i) {
    if (!f[f[block].ops[i]].body) continue;
    defer_in_block(f, f[f[block].ops[i]].body);
    defer_in_loop(f, block, i);
  }
}

}  // namespace

void defer_reductions(Function& f, const PassContext&) { defer_in_block(f, f.body); }

}  // namespace flashcore
