// Elementwise operations in groups, one nest of unrolled loops each; packing for products.
#include <algorithm>
#include <map>

#include "codegen/analysis/inside_axis.h"
#include "codegen/print/kernel_printer.h"

namespace flashcore {

using namespace ir;

KernelPrinter::Shape KernelPrinter::shape_of(ValueId value) const {
  Shape shape{f_[value].type.axes, f_[value].layout.axes};
  // A block of fragments is one thing.
  if (f_[value].layout.space == Space::opaque)
    for (AxisLayout& layout : shape.layouts) layout.slots = 1;
  return shape;
}

bool KernelPrinter::dies_at(ValueId value, std::size_t position) const {
  return defining_block_[value.index] == block_ && last_use_[value.index] <= position;
}

std::string KernelPrinter::array_type(ValueId value) const {
  switch (f_[value].type.dtype) {
    case DType::i32:
      return "int";
    case DType::i1:
      return "bool";
    default:
      return "float";
  }
}

std::string KernelPrinter::declare(ValueId value, bool zero) {
  const Shape shape = shape_of(value);
  std::string dims;
  int slots = 1;
  for (const AxisLayout& layout : shape.layouts) {
    dims += fmt::format("[{}]", layout.fragments);
    slots *= layout.slots;
  }
  storage_[value.index] = names_.unique(f_[value].name);
  if (f_[value].layout.space == Space::opaque) {
    out_.line("fc::sum_block {}{}{};", storage_[value.index], dims, zero ? " = {}" : "");
    return storage_[value.index];
  }
  out_.line("{} {}{}[{}]{};", array_type(value), storage_[value.index], dims, slots,
            zero ? " = {}" : "");
  return storage_[value.index];
}

KernelPrinter::Cursor KernelPrinter::open_loops(const Shape& shape, Writer::Scopes& scopes,
                                                bool braces) {
  static constexpr const char* fragment_names[] = {"i", "j"};
  Cursor cursor;
  cursor.axes = shape.axes;
  cursor.layouts = shape.layouts;
  int slots = 1;
  for (std::size_t k = 0; k < shape.axes.size(); ++k) {
    slots *= shape.layouts[k].slots;
    const int count = shape.layouts[k].fragments;
    if (count == 1) {
      cursor.fragments.emplace_back("0");
    } else {
      scopes.push_back(out_.unrolled(fragment_names[k], count, braces));
      cursor.fragments.emplace_back(fragment_names[k]);
    }
  }
  if (slots > 1) scopes.push_back(out_.unrolled("e", slots, braces));
  cursor.element = slots > 1 ? "e" : "0";
  if (shape.axes.size() == 1) {
    cursor.slots = {cursor.element};
  } else {
    const int rows = shape.layouts[0].slots, columns = shape.layouts[1].slots;
    cursor.slots = {rows == 1      ? "0"
                    : columns == 1 ? "e"
                                   : fmt::format("(e / {})", columns),
                    columns == 1 ? "0"
                    : rows == 1  ? "e"
                                 : fmt::format("(e % {})", columns)};
  }
  return cursor;
}

/// Prints the elementwise ops from `first` on that make up one nest of loops; returns the position
/// after the last of them.
std::size_t KernelPrinter::print_group(BlockId block, std::size_t first) {
  const auto& ops = f_[block].ops;
  std::vector<std::size_t> run;
  for (std::size_t i = first; i < ops.size(); ++i) {
    const Op& op = f_[ops[i]];
    if (kind_of(op.code) == OpKind::source || masks_.printed_at.count(i)) continue;
    if (op.results.size() == 1 && folded_.count(op.results[0])) continue;
    if (kind_of(op.code) != OpKind::elementwise || masks_.own.count(op.results[0]) ||
        f_[op.results[0]].layout.space != Space::registers || tanhs_.count(op.results[0]))
      break;
    run.push_back(i);
  }
  // One shape a nest. Ops of other shapes in between that do not depend on it go first, so that
  // they do not cut it; the nest ends at one that does.
  const Shape shape = shape_of(f_[ops[first]].results[0]);
  std::set<ValueId> made;
  std::vector<std::size_t> nest;
  std::size_t end = 0;
  for (std::size_t i : run) {
    const Op& op = f_[ops[i]];
    const bool same = shape_of(op.results[0]) == shape;
    if (!same && std::any_of(op.operands.begin(), op.operands.end(),
                             [&](ValueId operand) { return made.count(operand) > 0; }))
      break;
    nest.push_back(i);
    if (!same) continue;
    made.insert(op.results[0]);
    end = nest.size();
  }
  nest.resize(end);
  print_run(block, nest);
  return nest.back() + 1;
}

/// Prints a run of elementwise ops whose last has the shape of the nest.
void KernelPrinter::print_run(BlockId block, const std::vector<std::size_t>& run) {
  const auto& ops = f_[block].ops;
  const Shape shape = shape_of(f_[ops[run.back()]].results[0]);
  std::vector<std::size_t> group;
  for (std::size_t i : run) {
    if (shape_of(f_[ops[i]].results[0]) == shape)
      group.push_back(i);
    else
      emit_group(block, {i}, i + 1, false);
  }
  emit_group(block, group, run.back() + 1, true);
}

/// Whether every reader of a 16-bit value rounds what it reads: then the cast itself need not.
bool KernelPrinter::rounded_by_consumers(ValueId value) const {
  bool all = true;
  for_each_op(f_, f_.body, [&](const Op& op, BlockId) {
    if (op.code == OpCode::store || op.code == OpCode::convert) return;
    for (ValueId operand : op.operands) all = all && operand != value;
  });
  return all;
}

/// An integer made of positions and scalars, as a part that is the same for all elements of a row
/// that a thread holds and the rest, a constant of the unrolled loops. One conversion a row then
/// does for all of it: the sum of both, as floats, is at most a rounding off, and exact up to 2^24.
std::optional<KernelPrinter::SplitPosition> KernelPrinter::split_positions(ValueId value,
                                                                           const Cursor& cursor) {
  const Op* op = f_.definition(value);
  if (f_[value].type.dtype != DType::i32) return std::nullopt;
  if (f_[value].type.is_scalar()) return SplitPosition{scalar(value)};
  if (!op) return std::nullopt;
  if (op->code == OpCode::index) {
    for (std::size_t k = 0; k < cursor.axes.size(); ++k) {
      if (cursor.axes[k] != op->axis) continue;
      const AxisLayout& layout = cursor.layouts[k];
      // Columns lie in the unrolled loops; a row's own fragment and slot stay with its base.
      if (k + 1 < cursor.axes.size())
        return SplitPosition{"(" + position(op->axis, layout, cursor) + ")"};
      Cursor start = cursor;
      start.fragments[k] = start.slots[k] = "0";
      std::string offset;
      const auto add = [&](const std::string& index, int step) {
        if (index != "0")
          offset += fmt::format("{}{} * {}", offset.empty() ? "" : " + ", index, step);
      };
      add(cursor.fragments[k], layout.fragment_size());
      add(cursor.slots[k], layout.slot_stride);
      return SplitPosition{"(" + position(op->axis, layout, start) + ")",
                           offset.empty() ? "0" : "(" + offset + ")"};
    }
    return std::nullopt;
  }
  if (op->code != OpCode::add && op->code != OpCode::sub) return std::nullopt;
  // A long text is not the cheaper one, and what is shared would be written at every use.
  constexpr std::size_t longest = 400;
  const auto a = split_positions(op->operands[0], cursor);
  if (!a || a->base.size() + a->rest.size() > longest) return std::nullopt;
  const auto b = split_positions(op->operands[1], cursor);
  if (!b || b->base.size() + b->rest.size() > longest) return std::nullopt;
  const char sign = op->code == OpCode::add ? '+' : '-';
  const auto join = [&](const std::string& x, const std::string& y) {
    if (y == "0") return x;
    return fmt::format("({} {} {})", x, sign, y);
  };
  return SplitPosition{join(a->base, b->base), join(a->rest, b->rest)};
}

void KernelPrinter::emit_group(BlockId block, const std::vector<std::size_t>& positions,
                               std::size_t end, bool take_over) {
  print_nest(block, positions, start_group(block, positions, end, take_over));
}

/// Gives the values of a group that are read behind it their arrays; returns the others.
std::set<ValueId> KernelPrinter::start_group(BlockId block,
                                             const std::vector<std::size_t>& positions,
                                             std::size_t end, bool take_over) {
  const auto& ops = f_[block].ops;
  const Shape shape = shape_of(f_[ops[positions[0]]].results[0]);

  // Values that nobody outside reads are locals of the loop; the others get an array, taken over
  // from an operand that dies in the same place where there is one.
  std::set<ValueId> locals;
  for (std::size_t at : positions) {
    const Op& op = f_[ops[at]];
    const ValueId value = op.results[0];
    if (last_use_[value.index] < end) {
      locals.insert(value);
      continue;
    }
    std::string text = fmt::format("{}(", name_of(op.code));
    for (std::size_t i = 0; i < op.operands.size(); ++i)
      text += (i ? ", " : "") + describe(op.operands[i], locals);
    for (ValueId operand : op.operands) {
      if (!storage_[value.index].empty()) break;
      const Op* made_by = f_.definition(operand);
      if (!take_over || (made_by && kind_of(made_by->code) == OpKind::source)) continue;
      if (locals.count(operand) || !(shape_of(operand) == shape) || !dies_at(operand, at) ||
          array_type(operand) != array_type(value) || storage_[operand.index].empty())
        continue;
      storage_[value.index] = storage_[operand.index];
      break;
    }
    if (storage_[value.index].empty()) declare(value);
    constexpr std::size_t longest_remark = 400;
    if (text.size() > longest_remark) text = text.substr(0, longest_remark) + "...";
    out_.comment(fmt::format("{} = {})", label(value), text));
  }
  return locals;
}

/// A comparison of a column's position with something that is the same along the row: constants of
/// the unrolled loops against a number a row, so that an element costs one instruction.
std::optional<std::string> KernelPrinter::compare_positions(
    const Op& op, const std::vector<std::string>& operands, const Cursor& cursor) {
  if (op.code != OpCode::lt && op.code != OpCode::le && op.code != OpCode::gt &&
      op.code != OpCode::ge)
    return std::nullopt;
  for (std::size_t k : {0, 1}) {
    const ValueId column = op.operands[k], other = op.operands[1 - k];
    const Op* index = f_.definition(column);
    if (!index || index->code != OpCode::index || index->axis != cursor.axes.back() ||
        f_[other].type.has(index->axis))
      continue;
    const auto parts = split_positions(column, cursor);
    if (!parts || parts->rest == "0") continue;
    // No position is negative, so what is below -1 may as well be that, and the difference is in
    // range.
    const bool has_room = leaves_room(f_, other, index->axis);
    const std::string bound =
        has_room ? operands[1 - k] : fmt::format("fc::max({}, -1)", operands[1 - k]);
    std::vector<std::string> compared(2);
    compared[k] = parts->rest;
    compared[1 - k] = fmt::format("({} - {})", bound, parts->base);
    return expression(op, compared);
  }
  return std::nullopt;
}

/// A lookup of an element. Positions themselves, of which none is negative, are split; any other
/// index is taken as it is.
std::string KernelPrinter::gathered_element(const Op& op, const std::vector<std::string>& operands,
                                            const Cursor& cursor) {
  if (const auto tested = tested_.find(op.results[0]); tested != tested_.end())
    return tested_element(op, tested->second, operands, cursor);
  std::vector<SplitPosition> indices;
  for (std::size_t d = 0; d < operands.size(); ++d) {
    const Op* index = f_.definition(op.operands[d]);
    const auto parts = index && index->code == OpCode::index && !(op.wraps >> d & 1)
                           ? split_positions(op.operands[d], cursor)
                           : std::nullopt;
    indices.push_back(parts.value_or(SplitPosition{operands[d]}));
  }
  return gathered(op, indices);
}

/// The loops over a group's elements.
void KernelPrinter::print_nest(BlockId block, const std::vector<std::size_t>& positions,
                               const std::set<ValueId>& locals) {
  const std::string test = print_test_of_lookups(block, positions);
  if (test.empty()) return print_loops(block, positions, locals);
  {
    auto tested = out_.block("if ({})", test);
    print_loops(block, positions, locals);
  }
  tested_.clear();
  auto others = out_.block("else");
  print_loops(block, positions, locals);
}

void KernelPrinter::print_loops(BlockId block, const std::vector<std::size_t>& positions,
                                const std::set<ValueId>& locals) {
  Writer::Scopes scopes;
  const ValueId first = f_[f_[block].ops[positions[0]]].results[0];
  print_elements(block, positions, locals,
                 open_loops(shape_of(first), scopes, positions.size() > 1));
}

/// One element of each op of a group.
void KernelPrinter::print_elements(BlockId block, const std::vector<std::size_t>& positions,
                                   const std::set<ValueId>& locals, const Cursor& cursor) {
  const auto& ops = f_[block].ops;
  // A scalar times positions is the scalar times each of their parts: the row's is taken once, and
  // joins the other in one instruction.
  std::map<ValueId, SplitPosition> split;
  const auto scales = [&](const Op* reader, ValueId positions_of) {
    if (!reader || reader->code != OpCode::mul || !locals.count(positions_of)) return false;
    return f_[reader->operands[reader->operands[0] == positions_of ? 1 : 0]].type.is_scalar();
  };

  for (std::size_t at : positions) {
    const Op& op = f_[ops[at]];
    const ValueId value = op.results[0];
    std::vector<std::string> operands;
    for (ValueId operand : op.operands) {
      // Behind the test of a guard its masks are what they are without it.
      if (const auto left = behind_guard_.find(operand); left != behind_guard_.end())
        operand = left->second;
      const bool guard = folded_.count(operand) && f_[operand].type.is_scalar();
      operands.push_back(split.count(operand) || guard ? "" : element(operand, cursor));
    }
    std::string text =
        op.code == OpCode::cast && is_half(f_[value].type.dtype) && rounded_by_consumers(value)
            ? operands[0]
        : op.code == OpCode::gather ? gathered_element(op, operands, cursor)
                                    : expression(op, operands);
    if (op.code == OpCode::where && folded_.count(op.operands[0]) &&
        !behind_guard_.count(op.operands[0]))
      text = operands[2];
    if (const auto comparison = compare_positions(op, operands, cursor)) text = *comparison;
    if (op.code == OpCode::cast && f_[value].type.dtype == DType::f32)
      if (const auto parts = split_positions(op.operands[0], cursor); parts && parts->rest != "0") {
        if (scales(only_reader(block, value), value)) {
          split.emplace(value, *parts);
          continue;
        }
        text = fmt::format("(static_cast<float>({}) + static_cast<float>({}))", parts->base,
                           parts->rest);
      }
    for (std::size_t k : {0, 1})
      if (op.code == OpCode::mul && split.count(op.operands[k])) {
        const auto& [row, column] = split.at(op.operands[k]);
        text = fmt::format("fc::fma({0}, static_cast<float>({2}), {0} * static_cast<float>({1}))",
                           operands[1 - k], row, column);
      }
    if (text.starts_with("(")) text = text.substr(1, text.size() - 2);
    if (locals.count(value)) {
      storage_[value.index] = names_.unique(f_[value].name);
      inlined_.insert(value);
      out_.line("const {} {} = {};", array_type(value), storage_[value.index], text);
    } else {
      out_.line("{} = {};", element(value, cursor), text);
    }
  }
}

/// The array of the carried value that this one is the next of, if nothing reads it from here on.
std::string KernelPrinter::carried_array(ValueId value) const {
  const Op& yield = f_[f_[block_].ops.back()];
  if (yield.code != OpCode::yield) return {};
  for (std::size_t i = 0; i < yield.operands.size() && i + 1 < f_[block_].arguments.size(); ++i) {
    const ValueId argument = f_[block_].arguments[i + 1];
    if (yield.operands[i] == value && last_use_[argument.index] < position_)
      return storage_[argument.index];
  }
  return {};
}

/// A computed left operand: neighbouring accumulator fragments, rounded and packed in pairs.
void KernelPrinter::print_pack(const Op& op) {
  const ValueId value = op.results[0], from = op.operands[0];
  const AxisLayout &rows = f_[from].layout.axes[0], &columns = f_[from].layout.axes[1];
  const std::string x = storage_[from.index];
  storage_[value.index] = carried_array(value);
  const bool takes_over = !storage_[value.index].empty();
  if (!takes_over)
    storage_[value.index] = names_.unique(f_[value].name.empty() ? x + "_operand" : f_[value].name);
  out_.comment(fmt::format("{}: {} as a left operand", storage_[value.index], x));
  if (!takes_over)
    out_.line("fc::u32 {}[{}][{}][4];", storage_[value.index], rows.fragments,
              columns.fragments / 2);
  const std::string_view type = element_type(f_[value].type.dtype);
  auto i = out_.unrolled("i", rows.fragments, false);
  auto k = out_.unrolled("k", columns.fragments / 2, false);
  auto r = out_.unrolled("r", 4, false);
  out_.line("{0}[i][k][r] =", storage_[value.index]);
  out_.line(
      "    fc::pack<{0}>({1}[i][2 * k + r / 2][r % 2 * 2], {1}[i][2 * k + r / 2][r % 2 * 2 + 1]);",
      type, x);
}

}  // namespace flashcore
