// Products of wmma: a warp loads, multiplies and stores fragments of 16 x 16 x 16, of which it is
// not known which lane holds which element.
#include "codegen/instructions/instruction.h"
#include "codegen/instructions/product.h"

namespace flashcore {
namespace {

/// The address and the pitch of the block at (row, column) of a shared tile.
std::string block_at(const ProductOperand& operand, const std::string& row,
                     const std::string& column) {
  const int pitch = operand.buffer->pitch;
  return fmt::format("{} + (({}) * {} + {}) * 2, {}", operand.base, row, pitch, column, pitch);
}

std::string left_block(const ProductOperand& a, const ir::AxisLayout& rows) {
  const std::string outer = fmt::format("{} + i * 16", warp_base(rows));
  return a.transposed ? block_at(a, "k * 16", outer) : block_at(a, outer, "k * 16");
}

void print_product(const Product& p) {
  auto inner = p.out.unrolled("k", p.terms / 16);
  if (p.left.buffer) {
    p.out.line("fc::left_block<{}, {}> a[{}];", p.element, p.left.transposed, p.rows.fragments);
    auto down = p.out.unrolled("i", p.rows.fragments, false);
    p.out.line("fc::load_block(a[i], {});", left_block(p.left, p.rows));
  }
  auto across = p.out.unrolled("j", p.columns.fragments);
  p.out.line("fc::right_block<{}, {}> b;", p.element, p.right.transposed);
  const std::string outer = fmt::format("{} + j * 16", warp_base(p.columns));
  p.out.line("fc::load_block(b, {});", p.right.transposed ? block_at(p.right, outer, "k * 16")
                                                          : block_at(p.right, "k * 16", outer));
  auto down = p.out.unrolled("i", p.rows.fragments, false);
  p.out.line("fc::multiply_blocks({}[i][j], {}, b);", p.sums,
             p.left.buffer ? "a[i]" : fmt::format("{}[i][k]", p.left.base));
}

void print_left_load(const LeftOperandLoad& load) {
  load.out.line("fc::left_block<{}, {}> {}[{}][{}];", load.element, load.source.transposed,
                load.array, load.rows.fragments, load.terms / 16);
  auto i = load.out.unrolled("i", load.rows.fragments, false);
  auto k = load.out.unrolled("k", load.terms / 16, false);
  load.out.line("fc::load_block({}[i][k], {});", load.array, left_block(load.source, load.rows));
}

constexpr ir::AxisLayout block{.slots = 16};

}  // namespace

constexpr TensorInstruction wmma{
    .name = Instruction::wmma,
    .columns = 16,
    .opaque = true,
    .sum_rows = block,
    .sum_columns = block,
    .computed_left = ComputedOperand::shared,
    .pitch = shared_pitch,  // a block is read by its first address and a pitch
    .print_product = print_product,
    .print_left_load = print_left_load};

}  // namespace flashcore
