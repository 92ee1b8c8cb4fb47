#include "codegen/analysis/rescaled_sums.h"

#include <algorithm>
#include <set>
#include <utility>

#include "codegen/analysis/changes.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

class Analysis {
 public:
  Analysis(const Function& f, const Op& loop)
      : f_(f), carried_(carried_by(f, loop)), changes_(f, /*inside=*/true) {}

  /// All that is carried is assumed to change: at first in a way that is not known, then extremes
  /// by an amount of their own before and behind an iteration.
  CarriedValues run() {
    CarriedValues found;
    Changes varying = changes_;
    for (const Carried& c : carried_) varying.assume(c.argument, unknown_change);
    for (const Carried& c : carried_) {
      found.push_back(extreme(c, varying));
      changes_.assume(c.argument, found.back() ? grown(c.argument) : unknown_change);
      if (found.back()) changes_.assume(c.next, grown(c.next));
    }
    const CarriedValues extremes = found;
    for (std::size_t i = 0; i < found.size(); ++i)
      if (!found[i]) found[i] = sum(carried_[i], extremes);
    return found;
  }

 private:
  static Change grown(ValueId value) { return {{}, {{{value}, 1}}}; }

  [[nodiscard]] std::optional<CarriedValue> extreme(const Carried& c, Changes& varying) const {
    const Op* op = f_.definition(c.next);
    if (!op || (op->code != OpCode::max && op->code != OpCode::min)) return std::nullopt;
    for (const std::size_t at : {0, 1})
      if (op->operands[at] == c.argument && varying.same(op->operands[1 - at]))
        return CarriedValue{.extreme = op->code};
    return std::nullopt;
  }

  /// next = carried * factor + added
  [[nodiscard]] std::optional<CarriedValue> sum(const Carried& c, const CarriedValues& extremes) {
    const auto made = carried_sum(f_, c.next, c.argument);
    if (!made) return std::nullopt;
    const Change added =
        made->added ? changes_.of(made->added) : changes_.of_dot(*f_.definition(c.next));
    if (made->factor) return rescaled(made->factor, added, extremes);
    return added == Change{} ? std::optional(CarriedValue{}) : std::nullopt;
  }

  /// The factor is exp2(h(m) - h(m')), what is added a multiple of exp2(-h(m')).
  [[nodiscard]] std::optional<CarriedValue> rescaled(ValueId factor, const Change& added,
                                                     const CarriedValues& extremes) {
    const Change scaling = changes_.of(factor);
    const auto is_power = [](const Change& c) { return c.known && c.plus.empty(); };
    if (!is_power(added) || added.power.empty() || !is_power(scaling)) return std::nullopt;
    for (std::size_t j = 0; j < extremes.size(); ++j) {
      if (!extremes[j]) continue;
      const Carried& m = carried_[j];
      LinearForm before;  // -h(m) made of -h(m')
      for (const auto& [product, number] : added.power) {
        std::vector<ValueId> earlier = product;
        std::ranges::replace(earlier, m.next, m.argument);
        std::ranges::sort(earlier);
        before[earlier] = number;
      }
      const LinearForm grows = add_forms(added.power, before, -1);
      const auto has_new = [&](const auto& term) { return std::ranges::count(term.first, m.next); };
      if (!std::ranges::all_of(added.power, has_new) ||
          !add_forms(grows, scaling.power, -1).empty())
        continue;
      CarriedValue found{
          .factor = factor, .follows = j, .old_extreme = m.argument, .new_extreme = m.next};
      const auto linear = added.power.find({m.next});
      if (linear != added.power.end() && added.power.size() == 1) found.slope = -linear->second;
      return found;
    }
    return std::nullopt;
  }

  const Function& f_;
  const std::vector<Carried> carried_;
  Changes changes_;
};

}  // namespace

CarriedValues carried_values(const Function& f, const Op& loop) { return Analysis(f, loop).run(); }

bool order_matters(const Function& f, const Op& loop) {
  if (loop.unordered) return false;
  if (std::ranges::any_of(carried_values(f, loop), [](const auto& value) { return !value; }))
    return true;
  const std::vector<ValueId>& arguments = f[loop.body].arguments;
  std::set<ValueId> depends(arguments.begin() + 1, arguments.end());
  bool matters = false;
  for_each_op(f, loop.body, [&](const Op& op, BlockId) {
    const bool reads = any_use(op, [&](ValueId v) { return depends.contains(v); });
    if (reads) depends.insert(op.results.begin(), op.results.end());
    if (reads && op.body) depends.insert(f[op.body].arguments.begin(), f[op.body].arguments.end());
    // Probes show what an iteration has, in whatever order.
    if (op.code != OpCode::store || f[op.tensor].unwritten) return;
    const bool own = std::ranges::any_of(
        op.coordinates, [&](const Coordinate& at) { return f.origin(at.axis) == loop.axis; });
    if (op.accumulation == Accumulation::any_order) return;
    matters = matters || reads || !own || op.accumulation == Accumulation::in_order;
  });
  return matters;
}

}  // namespace flashcore
