// Elementwise operations in groups, one nest of unrolled loops each; packing for products.
#include <algorithm>
#include <map>

#include "codegen/analysis/rounds_later.h"
#include "codegen/passes/rewrite.h"
#include "codegen/print/kernel_printer.h"
#include "dsl/error.h"

namespace flashcore {

using namespace ir;

KernelPrinter::Shape KernelPrinter::shape_of(ValueId value) const {
  Shape shape{f_[value].type.axes, f_[value].layout.axes};
  // A block of fragments is one thing.
  if (f_[value].layout.space == Space::opaque)
    for (AxisLayout& layout : shape.layouts) layout.slots = 1;
  // A left operand holds four packed pairs of two neighbouring fragments.
  if (f_[value].layout.space == Space::operand) {
    shape.layouts[0].slots = 1;
    shape.layouts[1].fragments /= 2;
    shape.layouts[1].slots = 4;
  }
  return shape;
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

/// Gives a value its array, and declares that where it is the first to lie in it.
void KernelPrinter::declare(ValueId value, bool zero, const std::string& otherwise) {
  if (!f_[value].array) throw InternalError(fmt::format("no array for tile {}", label(value)));
  std::string& name = arrays_[f_[value].array];
  storage_[value.index] = name;
  if (!name.empty()) {
    if (zero) fill(value, number(0, f_[value].type.dtype));
    return;
  }
  const Shape shape = shape_of(value);
  storage_[value.index] = name = names_.unique(f_[value].name.empty() ? otherwise : f_[value].name);
  const char* const start = zero ? " = {}" : "";
  std::string dims;
  int slots = 1;
  for (const AxisLayout& layout : shape.layouts) {
    dims += fmt::format("[{}]", layout.fragments);
    slots *= layout.slots;
  }
  switch (f_[value].layout.space) {
    case Space::opaque:
      return out_.line("fc::sum_block {}{}{};", name, dims, start);
    case Space::operand:
      return out_.line("fc::u32 {}{}[4];", name, dims);
    default:
      return out_.line("{} {}{}[{}]{};", array_type(value), name, dims, slots, start);
  }
}

/// Puts one text in the place of every element.
void KernelPrinter::fill(ValueId value, const std::string& text) {
  Writer::Scopes scopes;
  const Cursor cursor = open_loops(shape_of(value), scopes);
  out_.line("{} = {};", element(value, cursor), text);
}

/// Gives a value its array, and puts what another holds into it unless they share it.
void KernelPrinter::become(ValueId value, ValueId from) {
  const Op* made_by = f_.definition(from);
  const double* number = constant_of(f_, from);
  const bool source = made_by && kind_of(made_by->code) == OpKind::source;
  if (made_by && made_by->code == OpCode::undefined) return declare(value);
  const bool zero = number && *number == 0 && f_[value].layout.space != Space::operand;
  declare(value, zero);
  if (zero || (!source && storage_[from.index] == storage_[value.index])) return;
  Writer::Scopes scopes;
  const Cursor cursor = open_loops(shape_of(value), scopes);
  out_.line("{} = {};", element(value, cursor), element(from, cursor));
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

/// A lookup of an element: where a constant of the unrolled loops is added to an index, that is
/// told apart from the rest.
std::string KernelPrinter::gathered_element(const Op& op, const std::vector<std::string>& operands,
                                            const Cursor& cursor) {
  std::vector<SplitIndex> indices;
  for (std::size_t d = 0; d < operands.size(); ++d) {
    if (const Op* sum = f_.definition(op.operands[d]); sum && is_split_sum(*sum))
      indices.push_back({element(sum->operands[0], cursor), element(sum->operands[1], cursor)});
    else
      indices.push_back({operands[d], "0"});
  }
  return gathered(op, indices);
}

bool KernelPrinter::is_split_sum(const Op& op) const {
  const Op* offset = op.code == OpCode::add ? f_.definition(op.operands[1]) : nullptr;
  while (offset && offset->code == OpCode::neg) offset = f_.definition(offset->operands[0]);
  return offset && offset->code == OpCode::thread_offset;
}

/// Elements of all that a nest computes, one after the other.
void KernelPrinter::print_nest(const Op& nest) {
  const auto& ops = f_[nest.body].ops;
  std::set<ValueId> locals;
  std::vector<const Op*> reductions;
  for (OpId id : ops) {
    const Op& op = f_[id];
    if (kind_of(op.code) == OpKind::reduction) {
      reductions.push_back(&op);
    } else if (op.code != OpCode::yield && kind_of(op.code) != OpKind::source) {
      const ValueId value = op.results[0];
      if (!f_[value].array) {
        locals.insert(value);
        continue;
      }
      declare(value);
      std::string text = fmt::format("{}(", name_of(op.code));
      for (std::size_t i = 0; i < op.operands.size(); ++i)
        text += (i ? ", " : "") + describe(op.operands[i], locals);
      constexpr std::size_t longest_remark = 400;
      if (text.size() > longest_remark) text = text.substr(0, longest_remark) + "...";
      out_.comment(fmt::format("{} = {})", label(value), text));
    }
  }
  std::vector<std::string> parts;
  for (const Op* reduction : reductions) parts.push_back(start_reduction(*reduction));
  print_loops(nest, locals, parts);
  for (std::size_t i = 0; i < reductions.size(); ++i) finish_reduction(*reductions[i], parts[i]);
  const auto& yielded = f_[ops.back()].operands;
  for (std::size_t i = 0; i < yielded.size(); ++i)
    storage_[nest.results[i].index] = storage_[yielded[i].index];
}

void KernelPrinter::print_loops(const Op& nest, const std::set<ValueId>& locals,
                                const std::vector<std::string>& parts) {
  const auto& ops = f_[nest.body].ops;
  Shape shape;
  for (OpId id : ops)
    if (kind_of(f_[id].code) == OpKind::elementwise)
      if (const Shape one = shape_of(f_[id].results[0]); one.axes.size() > shape.axes.size())
        shape = one;
  Writer::Scopes scopes;
  const Cursor cursor = open_loops(shape, scopes, ops.size() > 2);
  if (nest.fence && cursor.element != "0") {
    const bool some = nest.fence > 1 && cursor.fragments.back() == "j";
    out_.line("if ({} == 0{}) fc::hold_order();", cursor.element,
              some ? fmt::format(" && j % {} == 0", nest.fence) : "");
  }
  print_elements(nest, locals, parts, cursor);
}

/// One element of each op of a nest.
void KernelPrinter::print_elements(const Op& nest, const std::set<ValueId>& locals,
                                   const std::vector<std::string>& parts, const Cursor& cursor) {
  const auto& ops = f_[nest.body].ops;
  std::size_t reduction = 0;
  for (OpId id : ops) {
    const Op& op = f_[id];
    if (op.code == OpCode::yield || kind_of(op.code) == OpKind::source) continue;
    if (kind_of(op.code) == OpKind::reduction) {
      print_element_of_reduction(op, parts[reduction++], cursor);
      continue;
    }
    const ValueId value = op.results[0];
    std::vector<std::string> operands;
    for (ValueId operand : op.operands) operands.push_back(element(operand, cursor));
    std::string text = op.code == OpCode::cast && rounds_later(f_, nest, value) ? operands[0]
                       : op.code == OpCode::gather ? gathered_element(op, operands, cursor)
                                                   : expression(op, operands);
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

/// A computed left operand: neighbouring accumulator fragments, rounded and packed in pairs.
void KernelPrinter::print_pack(const Op& op) {
  const ValueId value = op.results[0], from = op.operands[0];
  const AxisLayout &rows = f_[from].layout.axes[0], &columns = f_[from].layout.axes[1];
  const std::string x = storage_[from.index];
  declare(value, false, x + "_operand");
  out_.comment(fmt::format("{}: {} as a left operand", storage_[value.index], x));
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
