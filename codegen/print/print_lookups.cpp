// Gathers whose index is a sum of positions, such as a bias by the distance of two tokens. One test
// of the tile says whether every index lies inside the tensor, and whether negative ones all count
// from its end; the elements are then read without a bounds check of each.
#include <cstdlib>
#include <tuple>

#include "codegen/print/kernel_printer.h"
#include "dsl/ir/affine.h"

namespace flashcore {

using namespace ir;

/// The least and the greatest value that an index takes in the tile at hand, as text. Only for sums
/// of positions of tiles and scalars, each taken once: in 32 bits, a sum that is out of range then
/// shows by a greatest that is below the least.
std::optional<std::pair<std::string, std::string>> KernelPrinter::range_in_tile(ValueId index) {
  const auto form = affine_form(f_, index);
  if (!form || form->positions.empty()) return std::nullopt;
  std::string sum;
  const auto add = [&](std::int64_t factor, const std::string& term) {
    sum += sum.empty() ? (factor < 0 ? "-" : "") : (factor < 0 ? " - " : " + ");
    sum += term;
  };
  for (const auto& [scalar_value, factor] : form->scalars) {
    if (std::abs(factor) != 1) return std::nullopt;
    add(factor, scalar(scalar_value));
  }
  std::int64_t below = 0, above = 0;
  for (const auto& [axis, factor] : form->positions) {
    if (std::abs(factor) != 1 || f_[axis].kind == AxisKind::whole) return std::nullopt;
    add(factor, begin(axis));
    (factor < 0 ? below : above) += f_[axis].tile - 1;
  }
  const auto plus = [&](std::int64_t number) {
    return number == 0 ? sum
                       : fmt::format("{} {} {}", sum, number < 0 ? '-' : '+', std::abs(number));
  };
  return std::pair(plus(form->constant - below), plus(form->constant + above));
}

/// What the tile's test has to find for a lookup that it can answer for; none for others, whose
/// indices are of another kind, or positions alone, which cost nothing to look at.
std::optional<std::vector<KernelPrinter::TestedIndex>> KernelPrinter::tested_indices(const Op& op) {
  std::vector<TestedIndex> indices;
  bool sums = false;
  for (std::size_t d = 0; d < op.operands.size(); ++d) {
    const ValueId operand = op.operands[d];
    const Op* made_by = f_.definition(operand);
    const bool is_position = made_by && made_by->code == OpCode::index;
    TestedIndex index{.length = extent_text(f_[op.tensor].dims[d]),
                      .wraps = (op.wraps >> d & 1) != 0};
    if (f_[operand].type.is_scalar()) {
      index.low = index.high = scalar(operand);
    } else if (const auto range = range_in_tile(operand)) {
      std::tie(index.low, index.high) = *range;
      sums = sums || !is_position;
    } else {
      return std::nullopt;
    }
    indices.push_back(std::move(index));
  }
  return sums ? std::optional(indices) : std::nullopt;
}

/// Prints what the test of a group's lookups needs; returns the test, empty if there is none.
std::string KernelPrinter::print_test_of_lookups(BlockId block,
                                                 const std::vector<std::size_t>& positions) {
  std::string test;
  for (const std::size_t at : positions) {
    const Op& op = f_[f_[block].ops[at]];
    if (op.code != OpCode::gather || f_[op.results[0]].type.axes.size() != 2) continue;
    auto indices = tested_indices(op);
    if (!indices) continue;
    for (TestedIndex& index : *indices) {
      const std::string_view also = test.empty() ? "" : " && ";
      if (index.low == index.high && !index.wraps) {
        test += fmt::format("{}fc::within({}, {})", also, index.low, index.length);
        continue;
      }
      const std::string low = names_.unique("least"), high = names_.unique("greatest");
      out_.line("const int {} = {}, {} = {};", low, index.low, high, index.high);
      if (index.wraps) {
        index.shift = names_.unique("from_end");
        out_.line("const int {} = {} < 0 ? {} : 0;", index.shift, high, index.length);
      }
      const std::string shift = index.shift.empty() ? "" : " + " + index.shift;
      test += fmt::format("{0}{1}{3} >= 0 && {1} <= {2} && {2}{3} < {4}", also, low, high, shift,
                          index.length);
    }
    tested_.emplace(op.results[0], std::move(*indices));
  }
  return test;
}

/// An element of a lookup that the test has found inside.
std::string KernelPrinter::tested_element(const Op& op, const std::vector<TestedIndex>& indices,
                                          const std::vector<std::string>& operands,
                                          const Cursor& cursor) {
  // What is the same for a row first: the rest becomes a constant of the instruction.
  std::string base, rest;
  for (std::size_t d = 0; d < indices.size(); ++d) {
    const std::string step = stride(op.tensor, d);
    const std::string times = step == "1" ? "" : " * " + step;
    const auto parts = split_positions(op.operands[d], cursor).value_or(SplitPosition{operands[d]});
    const std::string& shift = indices[d].shift;
    base += fmt::format("{}({}{}){}", d ? " + " : "", parts.base,
                        shift.empty() ? "" : " + " + shift, times);
    if (parts.rest != "0") rest += fmt::format(" + {}{}", parts.rest, times);
  }
  return fmt::format("fc::gather(p.{} + ({}), {}, true)", fields_.tensor(op.tensor), base,
                     rest.empty() ? "0" : rest.substr(3));
}

}  // namespace flashcore
