// With softmax_columns: brings what goes over the columns of tiles together, so that it can go over
// them strip by strip. Between two ops that keep their places stand
//
//   p = exp2 x ; s = reduce_sum p ; l = fma l, d, s ; a = cast p          and become
//   p = exp2 x ; s = reduce_sum p ; a = cast p ; l = fma l, d, s
//
// since the sum of a row is there when its last column is, and not before. A landing among them
// goes in front of the last of them: what waits for its registers then goes along. The compiler
// would move the wait as far up by itself, but not over the strips that it is to leave in order.
#include <algorithm>
#include <set>
#include <vector>

#include "codegen/analysis/column_steps.h"
#include "codegen/passes/passes.h"

namespace flashcore {
namespace {

using namespace ir;

class Order {
 public:
  explicit Order(Function& f) : f_(f) {}

  void block(BlockId id) {
    std::vector<OpId> ordered, run;
    const std::vector<OpId> ops = f_[id].ops;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const Op& op = f_[ops[i]];
      if (op.body) block(op.body);
      if (moves(op)) {
        run.push_back(ops[i]);
        continue;
      }
      const bool overtakes =
          op.code == OpCode::land_products && op.operands.size() == op.results.size();
      run = order(run, ordered, /*all=*/!overtakes);
      ordered.push_back(ops[i]);
      while (overtakes && f_[ops[i + 1]].code == OpCode::release_slot) ordered.push_back(ops[++i]);
    }
    order(run, ordered, /*all=*/true);
    f_[id].ops = std::move(ordered);
  }

 private:
  [[nodiscard]] bool moves(const Op& op) const {
    return kind_of(op.code) == OpKind::source || column_work(f_, op) != ColumnWork::none ||
           (kind_of(op.code) == OpKind::elementwise && op.code != OpCode::tanh && !op.lazy);
  }

  [[nodiscard]] bool has_columns(const std::vector<OpId>& run) const {
    return std::ranges::any_of(
        run, [&](OpId id) { return column_work(f_, f_[id]) != ColumnWork::none; });
  }

  /// Appends the ops of a run: all of them, or those in front of its last columns. Returns the
  /// others.
  std::vector<OpId> order(std::vector<OpId> run, std::vector<OpId>& ordered, bool all) const {
    while (!run.empty()) {
      Parts parts = part(run);
      ordered.insert(ordered.end(), parts.before.begin(), parts.before.end());
      if (!all && !parts.columns.empty() && !has_columns(parts.behind)) {
        parts.columns.insert(parts.columns.end(), parts.behind.begin(), parts.behind.end());
        return parts.columns;
      }
      ordered.insert(ordered.end(), parts.columns.begin(), parts.columns.end());
      run = std::move(parts.behind);
    }
    return {};
  }

  struct Parts {
    std::vector<OpId> before, columns, behind;
  };

  /// What goes over columns until a row of them is reduced, what that needs, and what is left.
  [[nodiscard]] Parts part(const std::vector<OpId>& run) const {
    Parts parts;
    std::set<ValueId> by_columns, late;
    const auto reads = [&](const Op& op, const std::set<ValueId>& values) {
      return std::ranges::any_of(op.operands,
                                 [&](ValueId operand) { return values.contains(operand); });
    };
    for (OpId id : run) {
      const Op& op = f_[id];
      const ColumnWork work = column_work(f_, op);
      if (reads(op, late) || (work == ColumnWork::none && reads(op, by_columns))) {
        parts.behind.push_back(id);
        late.insert(op.results[0]);
      } else if (work == ColumnWork::none) {
        parts.before.push_back(id);
      } else {
        parts.columns.push_back(id);
        (work == ColumnWork::reduction ? late : by_columns).insert(op.results[0]);
      }
    }
    return parts;
  }

  Function& f_;
};

}  // namespace

void order_columns(Function& f, const PassContext& context) {
  if (context.schedule.softmax_columns > 0) Order(f).block(f.body);
}

}  // namespace flashcore
