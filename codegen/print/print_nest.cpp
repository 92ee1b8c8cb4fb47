// Elementwise operations in groups, one nest of unrolled loops each; packing for products.
#include <algorithm>
#include <map>

#include "codegen/analysis/inside_axis.h"
#include "codegen/passes/rewrite.h"
#include "codegen/print/kernel_printer.h"
#include "dsl/error.h"
#include "dsl/ir/nest.h"

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

/// Whether every reader of a 16-bit value rounds what it reads: then the cast itself need not.
bool KernelPrinter::rounded_by_readers(const Op& nest, ValueId value) const {
  const Op& yield = f_[f_[nest.body].ops.back()];
  ValueId result;
  for (std::size_t i = 0; i < yield.operands.size(); ++i)
    if (yield.operands[i] == value) result = nest.results[i];
  bool all = true;
  for_each_op(f_, f_.body, [&](const Op& op, BlockId) {
    if (op.code == OpCode::store || op.code == OpCode::convert || &op == &yield) return;
    for (ValueId operand : op.operands)
      all = all && operand != value && (!result || operand != result);
  });
  return all;
}

/// An integer made of positions and scalars, as a part that is the same for all elements of a row
/// that a thread holds and the rest, a constant of the unrolled loops. One conversion a row then
/// does for all of it: the sum of both, as floats, is at most a rounding off, and exact up to 2^24.
std::optional<KernelPrinter::SplitPosition> KernelPrinter::split_positions(ValueId value,
                                                                           const Cursor& cursor) {
  const Op* op = computation_of(f_, value);
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
  std::vector<SplitPosition> indices;
  for (std::size_t d = 0; d < operands.size(); ++d) {
    const Op* index = f_.definition(op.operands[d]);
    const bool splits =
        op.inside || (index && index->code == OpCode::index && !(op.wraps >> d & 1));
    const auto parts = splits ? split_positions(op.operands[d], cursor) : std::nullopt;
    indices.push_back(parts.value_or(SplitPosition{operands[d]}));
  }
  return gathered(op, indices);
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
  const auto elementwise = [&](OpId id) { return kind_of(f_[id].code) == OpKind::elementwise; };
  const auto first = std::ranges::find_if(ops, elementwise);
  Writer::Scopes scopes;
  const Cursor cursor = open_loops(shape_of(f_[*first].results[0]), scopes, ops.size() > 2);
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
  // A scalar times positions is the scalar times each of their parts: the row's is taken once, and
  // joins the other in one instruction.
  std::map<ValueId, SplitPosition> split;
  const auto scales = [&](ValueId positions_of) {
    const auto readers = readers_of(f_, nest.body, positions_of);
    if (readers.size() != 1 || !locals.count(positions_of)) return false;
    const Op& reader = f_[readers[0]];
    return reader.code == OpCode::mul &&
           f_[reader.operands[reader.operands[0] == positions_of ? 1 : 0]].type.is_scalar();
  };
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
    for (ValueId operand : op.operands)
      operands.push_back(split.count(operand) ? "" : element(operand, cursor));
    std::string text =
        op.code == OpCode::cast && is_half(f_[value].type.dtype) && rounded_by_readers(nest, value)
            ? operands[0]
        : op.code == OpCode::gather ? gathered_element(op, operands, cursor)
                                    : expression(op, operands);
    if (const auto comparison = compare_positions(op, operands, cursor)) text = *comparison;
    if (op.code == OpCode::cast && f_[value].type.dtype == DType::f32)
      if (const auto parts = split_positions(op.operands[0], cursor); parts && parts->rest != "0") {
        if (scales(value)) {
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
