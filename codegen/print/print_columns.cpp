// Steps that go over the columns of tiles strip by strip: each over so many columns at a time, one
// behind the other. No strip is moved over the end of another (fc::hold_order), or the compiler
// would put them in an order of its own.
#include <algorithm>

#include "codegen/print/kernel_printer.h"

namespace flashcore {

using namespace ir;

/// The steps that stand at a position; none where one step, or one strip, is all there is.
std::vector<ColumnStep> KernelPrinter::columns_at(BlockId block, std::size_t first) {
  if (schedule_.softmax_columns == 0) return {};
  const auto& ops = f_[block].ops;
  std::vector<std::size_t> positions;
  for (std::size_t at = first; at < ops.size(); ++at) {
    const Op& op = f_[ops[at]];
    if (kind_of(op.code) == OpKind::source || masks_.printed_at.count(at)) continue;
    const ValueId result = op.results.size() == 1 ? op.results[0] : ValueId{};
    if (folded_.count(result)) continue;
    if (column_work(f_, op) == ColumnWork::none || masks_.own.count(result) || tanhs_.count(result))
      break;
    positions.push_back(at);
  }
  std::vector<ColumnStep> steps = column_steps(f_, block, positions);
  if (steps.size() < 2 ||
      columns_of(block, steps[0]).fragments <= fragments_of_strip(block, steps[0]))
    return {};
  return steps;
}

/// The layout of what a step goes over.
const AxisLayout& KernelPrinter::columns_of(BlockId block, const ColumnStep& step) const {
  const Op& op = f_[f_[block].ops[step.positions.back()]];
  return f_[step.work == ColumnWork::elements ? op.results[0] : op.operands[0]].home.axes[1];
}

int KernelPrinter::fragments_of_strip(BlockId block, const ColumnStep& step) const {
  return std::max(1, schedule_.softmax_columns / columns_of(block, step).fragment_size());
}

/// Of `count` things along the columns, those that belong to the strip being printed.
std::pair<int, int> KernelPrinter::in_strip(int count) const {
  if (!strip_) return {0, count};
  return {count * strip_->first / strip_->all, count * strip_->last / strip_->all};
}

/// Prints the steps; returns the position after the last op.
std::size_t KernelPrinter::print_columns(BlockId block, const std::vector<ColumnStep>& steps) {
  struct Begun {
    std::set<ValueId> locals;  ///< of elements
    std::string parts;         ///< of a reduction
  };
  std::vector<Begun> begun;
  const auto op_of = [&](const ColumnStep& step) -> const Op& {
    return f_[f_[block].ops[step.positions.back()]];
  };
  for (const ColumnStep& step : steps) {
    position_ = step.positions.back();
    Begun& own = begun.emplace_back();
    switch (step.work) {
      case ColumnWork::reduction:
        own.parts = start_reduction(op_of(step));
        break;
      case ColumnWork::packing:
        start_pack(op_of(step));
        break;
      default:
        own.locals = start_group(block, step.positions, position_ + 1, /*take_over=*/true);
    }
  }

  const int all = columns_of(block, steps[0]).fragments, each = fragments_of_strip(block, steps[0]);
  const int strips = (all + each - 1) / each;
  const int distance = schedule_.softmax_distance / schedule_.softmax_columns;
  for (int round = 0; round < strips + steps.back().level * distance; ++round) {
    if (round > 0) out_.line("fc::hold_order();");
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const int strip = round - steps[i].level * distance;
      if (strip < 0 || strip >= strips) continue;
      strip_ = Strip{strip * each, std::min((strip + 1) * each, all), all};
      const AxisLayout& columns = columns_of(block, steps[i]);
      // Packing takes two fragments at a time, and other tiles than the first share theirs out as
      // evenly as it goes.
      const auto [from, to] = in_strip(steps[i].work == ColumnWork::packing ? columns.fragments / 2
                                                                            : columns.fragments);
      if (from == to) continue;
      out_.comment(
          fmt::format("{}, strip {} of {}", label(op_of(steps[i]).results[0]), strip + 1, strips));
      switch (steps[i].work) {
        case ColumnWork::reduction:
          reduce_elements(op_of(steps[i]), begun[i].parts);
          break;
        case ColumnWork::packing:
          pack_elements(op_of(steps[i]));
          break;
        default:
          print_nest(block, steps[i].positions, begun[i].locals);
      }
    }
  }
  strip_.reset();
  for (std::size_t i = 0; i < steps.size(); ++i)
    if (steps[i].work == ColumnWork::reduction) finish_reduction(op_of(steps[i]), begun[i].parts);
  return steps.back().positions.back() + 1;
}

}  // namespace flashcore
