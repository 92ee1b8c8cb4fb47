// Products of opaque 16 x 16 x 16 blocks: a warp loads, multiplies and stores blocks, and which
// lane holds which element is nobody's business.
#include "codegen/analysis/shared_use.h"
#include "codegen/print/kernel_printer.h"

namespace flashcore {

using namespace ir;

namespace {

/// The address and the pitch of the block at (row, column) of a shared tile.
std::string block_at(const std::string& base, const Buffer& buffer, const std::string& row,
                     const std::string& column) {
  return fmt::format("{} + (({}) * {} + {}) * 2, {}", base, row, buffer.pitch, column,
                     buffer.pitch);
}

}  // namespace

std::string KernelPrinter::left_block(const SharedOperand& a, const AxisLayout& rows,
                                      const std::string& fragment, const std::string& step) const {
  const std::string outer = fmt::format("{} + {} * 16", warp_base(rows), fragment);
  const std::string inner = fmt::format("{} * 16", step);
  return a.transposed ? block_at(a.base, *a.buffer, inner, outer)
                      : block_at(a.base, *a.buffer, outer, inner);
}

void KernelPrinter::print_block_dot(const Op& op) {
  const ValueId value = op.results[0], left = op.operands[0];
  const AxisLayout &rows = f_[value].home.axes[0], &columns = f_[value].home.axes[1];
  const int steps = f_[f_[left].type.axes[1]].tile / 16;
  const std::string_view type = element_type(f_[left].type.dtype);
  const bool kept = f_[left].home.space == Space::operand;

  std::string text = fmt::format("dot({}, {})", label(left), label(op.operands[1]));
  if (op.operands.size() == 3) text = fmt::format("{} + {}", label(op.operands[2]), text);
  out_.comment(fmt::format("{} = {}", f_[value].name.empty() ? "product" : f_[value].name, text));
  start_sum(op);

  const SharedOperand a = kept ? SharedOperand{} : shared_operand(left);
  const SharedOperand b = shared_operand(op.operands[1]);
  auto inner = out_.unrolled("k", steps);
  if (!kept) {
    out_.line("fc::left_block<{}, {}> a[{}];", type, a.transposed, rows.fragments);
    auto down = out_.unrolled("i", rows.fragments, false);
    out_.line("fc::load_block(a[i], {});", left_block(a, rows, "i", "k"));
  }
  auto across = out_.unrolled("j", columns.fragments);
  out_.line("fc::right_block<{}, {}> b;", type, b.transposed);
  const std::string outer = fmt::format("{} + j * 16", warp_base(columns));
  out_.line("fc::load_block(b, {});", b.transposed ? block_at(b.base, *b.buffer, outer, "k * 16")
                                                   : block_at(b.base, *b.buffer, "k * 16", outer));
  auto down = out_.unrolled("i", rows.fragments, false);
  out_.line("fc::multiply_blocks({}[i][j], {}, b);", storage_[value.index],
            kept ? fmt::format("{}[i][k]", storage_[left.index]) : "a[i]");
}

}  // namespace flashcore
