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

class WeightRounding {
 public:
  explicit WeightRounding(Function& f) : f_(f) {}

  void run() {
    for (OpId loop : std::vector(f_[f_.body].ops)) {
      if (f_[loop].code != OpCode::loop || !hides_weights(loop)) continue;
      const std::size_t count = f_[loop].results.size();
      for (std::size_t i = 0; i < count; ++i) {
        const std::optional<Sum> sum = find_sum(f_[loop], i);
        if (!sum) continue;
        if (reaches_f32_output(f_, f_[loop].results[i]))
          sum_apart(loop, i, *sum);
        else
          replace(loop, i, *sum);
      }
    }
    remove_dead_ops(f_);
  }

 private:
  struct Sum {
    ValueId total;  ///< of an iteration
    ValueId weights;
    AxisId axis;
    DType dtype;  ///< of the weights in the product
  };

  /// What hides scores; nothing is rounded where nothing can be hidden.
  [[nodiscard]] bool hides(const Op& op) const {
    return op.code == OpCode::where && is_minus_infinity(f_, op.operands[2]);
  }

  [[nodiscard]] bool hides_weights(OpId loop) const {
    return std::ranges::any_of(f_[f_[loop].body].ops, [&](OpId id) { return hides(f_[id]); });
  }

  /// The scalar that says of a tile that nothing is hidden in it; none where no tile is known to
  /// hide nothing.
  [[nodiscard]] ValueId guard_of_masks(OpId loop) const {
    ValueId guard;
    for (OpId id : f_[f_[loop].body].ops)
      if (hides(f_[id]) && !(guard = guard_of(f_, f_[id]))) return {};
    return guard;
  }

  /// Of l' = l + sum p, where p is exponentials and the left operand of o' = o + p v.
  [[nodiscard]] std::optional<Sum> find_sum(const Op& loop, std::size_t i) const {
    const ValueId carried = f_[loop.body].arguments[i + 1];
    const auto carries = carried_sum(f_, yield_of(f_, loop).operands[i], carried);
    const std::vector<int> uses = count_uses_without_probes(f_);
    if (!is_number(f_, initial_of(loop, i), 0) || !carries || carries->factor ||
        uses[carried.index] != 1)
      return std::nullopt;
    const ValueId total = carries->added;
    const Op* reduction = definition_as(f_, total, OpCode::reduce_sum);
    if (!reduction || uses[total.index] != 1) return std::nullopt;
    const Op* exponential = f_.definition(reduction->operands[0]);
    if (!exponential || (exponential->code != OpCode::exp2 && exponential->code != OpCode::exp))
      return std::nullopt;
    for (OpId id : f_[loop.body].ops) {
      const Op& dot = f_[id];
      if (dot.code != OpCode::dot || dot.operands.size() != 3) continue;
      const Op* cast = definition_as(f_, dot.operands[0], OpCode::cast);
      if (cast && cast->operands[0] == reduction->operands[0] &&
          std::ranges::count(f_[loop.body].arguments, dot.operands[2]))
        return Sum{total, reduction->operands[0], reduction->axis, f_[cast->results[0]].type.dtype};
    }
    return std::nullopt;
  }

  static ValueId rounded(Builder& b, const Sum& sum) {
    return b.cast(b.cast(sum.weights, sum.dtype), DType::f32);
  }

  /// `otherwise`, but `full` on tiles that are known to hide nothing.
  ValueId where_hidden(Builder& b, OpId loop, ValueId full, ValueId otherwise) const {
    const ValueId guard = guard_of_masks(loop);
    return guard ? b.where(guard, full, otherwise) : otherwise;
  }

  void replace(OpId loop, std::size_t i, const Sum& sum) {
    const BlockId body = f_[loop].body;
    const OpId next = f_[yield_of(f_, f_[loop]).operands[i]].definition;
    Builder b = behind(f_, body, f_[sum.total].definition);
    const ValueId as_taken = b.reduce(OpCode::reduce_sum, rounded(b, sum), sum.axis);
    const ValueId chosen = where_hidden(b, loop, sum.total, as_taken);
    std::ranges::replace(f_[next].operands, sum.total, chosen);
  }

  /// What divides by a sum without deciding what an f32 output holds.
  [[nodiscard]] std::vector<OpId> divisions_by(ValueId sum) const {
    std::vector<OpId> found;
    for (OpId id : readers_of(f_, f_.body, sum)) {
      const Op& op = f_[id];
      const bool shows = std::ranges::any_of(
          op.results, [&](ValueId result) { return reaches_f32_output(f_, result); });
      if (kind_of(op.code) == OpKind::elementwise && !shows) found.push_back(id);
    }
    return found;
  }

  void sum_apart(OpId loop, std::size_t i, const Sum& sum) {
    const ValueId exact = f_[loop].results[i];
    const std::vector<OpId> divisions = divisions_by(exact);
    if (divisions.empty()) return;
    const TileType type = f_[exact].type;
    const ValueId zero = before(f_, f_.body, loop).constant(0, type.dtype, type.axes);
    const ValueId carried = add_carried(f_, loop, zero, "rounding");
    Builder inside = behind(f_, f_[loop].body, f_[sum.total].definition);
    const ValueId difference = inside.sub(rounded(inside, sum), sum.weights);
    const ValueId added = inside.reduce(OpCode::reduce_sum, difference, sum.axis);
    const ValueId next = inside.add(carried, where_hidden(inside, loop, zero, added));
    yield_of(f_, f_[loop]).operands.push_back(next);
    const ValueId as_taken = behind(f_, f_.body, loop).add(exact, f_[loop].results.back());
    for (OpId id : divisions) std::ranges::replace(f_[id].operands, exact, as_taken);
  }

  Function& f_;
};

}  // namespace

void round_weights(Function& f, const PassContext&) { WeightRounding(f).run(); }

}  // namespace flashcore
