// Elementwise operations in groups, one nest of unrolled loops each; packing for products.
#include <algorithm>

#include "codegen/print/kernel_printer.h"
#include "codegen/text/index_text.h"

namespace flashcore {

using namespace ir;

namespace {

/// Whether every reader of a 16-bit value of a nest rounds what it reads: stores and conversions to
/// shared memory pack pairs of floats. A cast then need not round.
bool rounds_later(const Function& f, const Op& nest, ValueId value) {
  if (!is_half(f[value].type.dtype)) return false;
  const Op& yield = last_of(f, nest.body);
  ValueId result;
  for (std::size_t i = 0; i < yield.operands.size(); ++i)
    if (yield.operands[i] == value) result = nest.results[i];
  return !any_op(f, f.body, [&](const Op& op) {
    if (op.code == OpCode::store || op.code == OpCode::convert || op.code == OpCode::issue ||
        &op == &yield)
      return false;
    const auto reads = [&](ValueId v) { return v && std::ranges::count(op.operands, v) > 0; };
    return reads(value) || reads(result);
  });
}

/// Whether a sum's second term is a constant of the unrolled loops.
bool is_split_sum(const Function& f, const Op& op) {
  const Op* offset = op.code == OpCode::add ? f.definition(op.operands[1]) : nullptr;
  while (offset && offset->code == OpCode::neg) offset = f.definition(offset->operands[0]);
  return offset && offset->code == OpCode::thread_offset;
}

}  // namespace

/// A lookup of an element: where a constant of the unrolled loops is added to an index, that is
/// told apart from the rest.
std::string KernelPrinter::gathered_element(const Op& op, const std::vector<std::string>& operands,
                                            const Cursor& cursor) {
  std::vector<SplitIndex> indices;
  for (std::size_t d = 0; d < operands.size(); ++d) {
    if (const Op* sum = f_.definition(op.operands[d]); sum && is_split_sum(f_, *sum))
      indices.push_back({element(sum->operands[0], cursor), element(sum->operands[1], cursor)});
    else
      indices.push_back({operands[d], "0"});
  }
  return gathered(op, indices);
}

/// Elements of all that a nest computes, one after the other.
void KernelPrinter::print_nest(const Op& nest) {
  const auto& ops = f_[nest.body].ops;
  std::vector<const Op*> reductions;
  for (OpId id : ops) {
    const Op& op = f_[id];
    if (kind_of(op.code) == OpKind::reduction) {
      reductions.push_back(&op);
    } else if (kind_of(op.code) == OpKind::elementwise && f_[op.results[0]].array) {
      declare(op.results[0]);
      out_.comment(fmt::format("{} = {}", label(op.results[0]), describe(op)));
    }
  }
  std::vector<std::string> parts;
  for (const Op* reduction : reductions) parts.push_back(start_reduction(*reduction));
  print_loops(nest, parts);
  for (std::size_t i = 0; i < reductions.size(); ++i) finish_reduction(*reductions[i], parts[i]);
  const auto& yielded = f_[ops.back()].operands;
  for (std::size_t i = 0; i < yielded.size(); ++i) {
    storage_[nest.results[i].index] = storage_[yielded[i].index];
    if (f_[nest.results[i]].pinned) out_.line("fc::pin({});", storage_[yielded[i].index]);
  }
}

/// One element of each op of a nest, under the loops over all elements.
void KernelPrinter::print_loops(const Op& nest, const std::vector<std::string>& parts) {
  const auto& ops = f_[nest.body].ops;
  Shape shape;
  for (OpId id : ops)
    if (kind_of(f_[id].code) == OpKind::elementwise)
      if (const Shape one = shape_of(f_[id].results[0]); one.axes.size() > shape.axes.size())
        shape = one;
  const Loops cursor = open_loops(shape, ops.size() > 2);
  if (nest.fence && cursor.element != "0") {
    const bool some = nest.fence > 1 && cursor.fragments.back() == "j";
    out_.line("if ({} == 0{}) fc::hold_order();", cursor.element,
              some ? fmt::format(" && j % {} == 0", nest.fence) : "");
  }
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
    const std::string text =
        without_parentheses(op.code == OpCode::cast && rounds_later(f_, nest, value) ? operands[0]
                            : op.code == OpCode::gather ? gathered_element(op, operands, cursor)
                                                        : expression(op, operands));
    if (f_[value].array)
      out_.line("{} = {};", element(value, cursor), text);
    else
      storage_[value.index] = constant(array_type(value), f_[value].name, text);
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
