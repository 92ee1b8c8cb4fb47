// mma.sync on f16 and bf16: fragments of both operands by ldmatrix, one instruction a 16 x 8 x 16
// block.
#include "codegen/instructions/instruction.h"
#include "codegen/instructions/matrix_address.h"
#include "codegen/instructions/product.h"

namespace flashcore {
namespace {

void print_product(const Product& p) {
  const std::string i = p.rows.fragments > 1 ? "i" : "0";
  auto inner = p.out.unrolled("k", p.terms / 16);
  std::string a = fmt::format("{}[{}][k]", p.left.base, i);
  if (p.left.buffer) {
    a = fmt::format("a[{}]", i);
    p.out.line("fc::u32 a[{}][4];", p.rows.fragments);
    const auto down = p.out.repeated("i", p.rows.fragments, false);
    load_left(p.out, p.left, p.rows, i, a);
  }
  auto across = p.out.unrolled("j", p.columns.fragments / 2);
  p.out.line("fc::u32 b[4];");
  if (p.right.transposed)
    p.out.line("fc::load_matrices(b, {});",
               matrix_address(p.right, plus(warp_base(p.columns), "lane % 8 + lane / 16 * 8"),
                              "lane / 8 % 2 * 8", "j * 16", "k * 16", p.first_term));
  else
    p.out.line("fc::load_matrices_transposed(b, {});",
               matrix_address(p.right, plus(p.first_term, "lane % 16"), "lane / 16 * 8", "k * 16",
                              "j * 16", warp_base(p.columns)));
  const auto down = p.out.repeated("i", p.rows.fragments);
  p.out.line("fc::multiply<{}>({}[{}][2 * j], {}, b[0], b[1]);", p.element, p.sums, i, a);
  p.out.line("fc::multiply<{}>({}[{}][2 * j + 1], {}, b[2], b[3]);", p.element, p.sums, i, a);
}

}  // namespace

constexpr TensorInstruction mma_m16n8k16{
    .name = Instruction::mma_m16n8k16,
    .available = &Target::mma_m16n8k16,
    .instead = "instruction = wmma with softmax = shared, or a target from sm_80 up",
    .column_step = 16,  // ldmatrix brings two instructions' columns
    .print_product = print_product,
    .print_left_load = print_left_load_of_halves};

}  // namespace flashcore
