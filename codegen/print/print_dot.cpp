// Products: what an instruction's description needs to know of one, in the words of the kernel.
#include <algorithm>

#include "codegen/analysis/shared_use.h"
#include "codegen/analysis/warp_partition.h"
#include "codegen/instructions/instruction.h"
#include "codegen/print/kernel_printer.h"

namespace flashcore {

using namespace ir;

ProductOperand KernelPrinter::shared_operand(ValueId value, bool in_place) {
  const OperandRoot root = operand_root(f_, value);
  std::string base = storage_[root.value.index];
  const bool from_here =
      made_in(f_, block_, root.value) || std::ranges::count(f_[block_].arguments, root.value) > 0;
  if (in_place && !from_here)
    base = constant("fc::u32", base, fmt::format("fc::in_place({})", base));
  return {base, &f_[buffer_of(f_, value)], root.transposed};
}

/// A product in flight reads shared memory by an address that the compiler sees once.
ProductOperand KernelPrinter::product_operand(const Op& product, std::size_t i) {
  const ValueId value = product.operands[i];
  if (f_[value].layout.space == Space::shared) return shared_operand(value, !product.issued);
  return {.base = storage_[value.index], .ordered = f_[value].layout.space == Space::operand};
}

void KernelPrinter::print_dot(const Op& op) {
  const ValueId value = op.results[0], left = op.operands[0];
  const bool adds = op.operands.size() == 3, cuts_sum = op.scope == ReductionScope::warp;
  const AxisLayout inner = cuts_sum ? f_[left].layout.axes[1] : AxisLayout{};

  std::string text = fmt::format("dot({}, {})", label(left), label(op.operands[1]));
  if (adds) text = fmt::format("{} + {}", label(op.operands[2]), text);
  if (cuts_sum) text += ", each warp its partial";
  if (op.issued) text += ", issued";
  out_.comment(fmt::format("{} = {}", f_[value].name.empty() ? "product" : f_[value].name, text));

  const Op* sum = adds ? f_.definition(op.operands[2]) : nullptr;
  if (adds)
    become(value, op.operands[2]);
  else
    declare(value, /*zero=*/!instruction_of(op).starts_sums);
  if (op.fence) out_.line("fc::hold_order();");
  const ProductOperand b = product_operand(op, 1), a = product_operand(op, 0);
  instruction_of(op).print_product({.out = out_,
                                    .element = element_type(f_[left].type.dtype),
                                    .sums = storage_[value.index],
                                    .adds = adds,
                                    .pinned = sum && (sum->issued || f_[op.operands[2]].pinned),
                                    .left = a,
                                    .right = b,
                                    .rows = f_[value].layout.axes[0],
                                    .columns = f_[value].layout.axes[1],
                                    .terms = f_[f_[left].type.axes[1]].tile / inner.warps,
                                    .first_term = warp_base(inner)});
}

/// A left operand from shared memory into registers, once for all iterations of a loop.
void KernelPrinter::print_operand_load(const Op& op) {
  const ValueId value = op.results[0];
  const ProductOperand source = shared_operand(op.operands[0]);
  source_.keeps_operands = source_.keeps_operands || instruction_of(op).asynchronous;
  // In an array of the instruction's own kind.
  storage_[value.index] = arrays_[f_[value].array] = names_.unique(label(op.operands[0]) + "_kept");
  out_.comment(fmt::format("{}: {} in registers", storage_[value.index], label(op.operands[0])));
  instruction_of(op).print_left_load({.out = out_,
                                      .element = element_type(f_[value].type.dtype),
                                      .array = storage_[value.index],
                                      .source = source,
                                      .rows = f_[value].layout.axes[0],
                                      .terms = f_[f_[value].type.axes[1]].tile});
}

}  // namespace flashcore
