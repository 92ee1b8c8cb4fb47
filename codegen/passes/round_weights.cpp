// A softmax divides a sum of weights times values by the sum of the weights. Products take the
// weights rounded to 16 bits. If the maximum of a row is subtracted, the largest weight is 1, and
// the output of a row that sees one key is exactly that key's values. If a constant is subtracted
// (fix_maximum), that one weight is rounded in the product but not in the sum. The pass makes the
// sum add up the weights as products take them:
//
//   p = exp2 x                                     p = exp2 x ; r = cast (cast p to 16 bits)
//   l' = l + sum p                  becomes        l' = l + where(full, sum p, sum r)
//   o' = o + cast p . v                            o' = o + cast p . v
//
// `full` is the guard of the loop's masks: no mask cuts the tile. Rows that see few keys see them
// in tiles that a mask cuts. Other tiles have so many visible keys that the rounding errors of
// their weights average out, so they keep the cheaper sum. A sum that reaches an f32 output, such
// as a log-sum-exp, stays exact: the rounding errors are then summed up separately, for the
// division alone.
#include <algorithm>
#include <optional>
#include <vector>

#include "codegen/analysis/tile_guard.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

/// What hides scores; nothing is rounded where nothing can be hidden.
bool hides_scores(const Function& f, const Op& op) {
  return op.code == OpCode::where && is_minus_infinity(f, op.operands[2]);
}

/// Of l' = l + sum p, where p is exponentials and the left operand of o' = o + p v.
std::optional<SumOfOperand> find_sum_of_weights(const Function& f, const Op& loop, std::size_t i) {
  const auto sum = sum_of_operand(f, loop, i, count_uses_without_probes(f));
  if (!sum || sum->factor) return std::nullopt;
  const Op* exponential = f.definition(sum->terms);
  const std::vector<ValueId>& operands = f[sum->product].operands;
  const bool found =
      exponential && (exponential->code == OpCode::exp2 || exponential->code == OpCode::exp) &&
      operands.size() == 3 && std::ranges::count(f[loop.body].arguments, operands[2]);
  return found ? sum : std::nullopt;
}

ValueId rounded(const Function& f, Builder& b, const SumOfOperand& sum) {
  return b.cast(b.cast(sum.terms, f[sum.rounded].type.dtype), DType::f32);
}

/// `otherwise`, but `full` on tiles that are known to hide nothing.
ValueId where_hidden(const Function& f, Builder& b, OpId loop, ValueId full, ValueId otherwise) {
  ValueId guard;
  for (OpId id : f[f[loop].body].ops)
    if (hides_scores(f, f[id]) && !(guard = guard_of(f, f[id]))) return otherwise;
  return guard ? b.where(guard, full, otherwise) : otherwise;
}

void round_sum(Function& f, OpId loop, std::size_t i, const SumOfOperand& sum) {
  const BlockId body = f[loop].body;
  const OpId next = f[last_of(f, body).operands[i]].definition;
  const AxisId axis = f.definition(sum.total)->axis;
  Builder b = behind(f, body, f[sum.total].definition);
  const ValueId as_taken = b.reduce(OpCode::reduce_sum, rounded(f, b, sum), axis);
  const ValueId chosen = where_hidden(f, b, loop, sum.total, as_taken);
  std::ranges::replace(f[next].operands, sum.total, chosen);
}

/// What divides by a sum without deciding what an f32 output holds.
std::vector<OpId> divisions_by(const Function& f, ValueId sum) {
  std::vector<OpId> found;
  for (OpId id : readers_of(f, f.body, sum)) {
    const Op& op = f[id];
    const bool shows = std::ranges::any_of(
        op.results, [&](ValueId result) { return reaches_f32_output(f, result); });
    if (kind_of(op.code) == OpKind::elementwise && !shows) found.push_back(id);
  }
  return found;
}

void sum_apart(Function& f, OpId loop, std::size_t i, const SumOfOperand& sum) {
  const ValueId exact = f[loop].results[i];
  const std::vector<OpId> divisions = divisions_by(f, exact);
  if (divisions.empty()) return;
  const TileType type = f[exact].type;
  const AxisId axis = f.definition(sum.total)->axis;
  const ValueId zero = before(f, f.body, loop).constant(0, type.dtype, type.axes);
  const ValueId carried = add_carried(f, loop, zero, "rounding");
  Builder inside = behind(f, f[loop].body, f[sum.total].definition);
  const ValueId difference = inside.sub(rounded(f, inside, sum), sum.terms);
  const ValueId added = inside.reduce(OpCode::reduce_sum, difference, axis);
  const ValueId next = inside.add(carried, where_hidden(f, inside, loop, zero, added));
  last_of(f, f[loop].body).operands.push_back(next);
  const ValueId as_taken = behind(f, f.body, loop).add(exact, f[loop].results.back());
  for (OpId id : divisions) std::ranges::replace(f[id].operands, exact, as_taken);
}

}  // namespace

void round_weights(Function& f, const PassContext&) {
  for (OpId loop : std::vector(f[f.body].ops)) {
    const auto hides = [&](OpId id) { return hides_scores(f, f[id]); };
    if (f[loop].code != OpCode::loop || std::ranges::none_of(f[f[loop].body].ops, hides)) continue;
    const std::size_t count = f[loop].results.size();
    for (std::size_t i = 0; i < count; ++i) {
      const std::optional<SumOfOperand> sum = find_sum_of_weights(f, f[loop], i);
      if (!sum) continue;
      if (reaches_f32_output(f, f[loop].results[i]))
        sum_apart(f, loop, i, *sum);
      else
        round_sum(f, loop, i, *sum);
    }
  }
  remove_dead_ops(f);
}

}  // namespace flashcore
