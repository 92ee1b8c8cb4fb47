// mma.sync on f32 rounded to tf32: one instruction a 16 x 8 x 8 block, every element rounded on its
// way into registers.
//
// A row of four f32 is to ldmatrix a row of eight 16-bit elements, so it brings operands whose rows
// run along the sum: a left operand as it is and a right one that is transposed. It cannot
// transpose 32-bit elements; those come word by word. Which lane then reads which term is free, as
// long as both operands agree: in pairs, terms 2t and 2t + 1 of every eight go to the lanes that
// ldmatrix would give t and t + 4. Then sums are a left operand as they are, and the swizzle keeps
// the words of 128-byte rows in different banks. Elsewhere two lanes would meet in one: every
// second lane reads its two terms the other way round.
#include "codegen/instructions/instruction.h"
#include "codegen/instructions/matrix_address.h"
#include "codegen/instructions/product.h"

namespace flashcore {
namespace {

/// Which terms of every eight a lane has: its first and, `apart` further on, its second.
struct TermOrder {
  const char* first;
  int apart;
};
constexpr TermOrder in_pairs{"lane % 4 * 2", 1}, in_halves{"lane % 4", 4};

/// A left operand that was loaded for several products is in halves, whatever their right ones are.
TermOrder order_of(const Product& p) {
  if (!p.left.buffer) return p.left.ordered ? in_halves : in_pairs;
  return p.right.transposed ? in_halves : in_pairs;
}

/// Words that lanes read of a tile: each its two terms of a row or a column.
class Words {
 public:
  Words(const ProductOperand& tile, const TermOrder& order, bool terms_are_rows)
      : tile_(tile), order_(order), terms_are_rows_(terms_are_rows) {
    const bool wide = tile.buffer->columns * size_of(tile.buffer->dtype) % 128 == 0;
    if (!terms_are_rows || order.apart == in_halves.apart || !wide)
      swaps_ = terms_are_rows ? "fc::odd_bits(lane % 4)" : "fc::odd_bits(lane / 4)";
  }

  /// Where a warp's part of an axis begins, and how much further on what is read lies.
  struct Place {
    std::string warp, step;
  };

  /// Reads the first and the second term of a lane, of eight at `terms`, in the row or column of
  /// the lane, of eight at `outer`.
  void read(Writer& out, const std::string& first, const std::string& second, const Place& outer,
            const Place& terms) const {
    const std::string apart = std::to_string(order_.apart);
    std::string term = order_.first, other = fmt::format("{} + {}", order_.first, apart);
    if (!swaps_.empty()) {
      const std::string swap_offset = times(swaps_, order_.apart);
      term += " + " + swap_offset;
      other += " - " + swap_offset;
    }
    out.line("{} = {};", first, word(term, outer, terms));
    out.line("{} = {};", second, word(other, outer, terms));
    if (!swaps_.empty()) out.line("fc::swap_if({}, {}, {});", swaps_, first, second);
  }

 private:
  /// Of a number of columns, as many of 16 bits.
  static std::string halves(const std::string& columns) {
    return columns == "0" ? "0" : fmt::format("({}) * 2", columns);
  }

  [[nodiscard]] std::string word(const std::string& term, const Place& outer,
                                 const Place& terms) const {
    const std::string line = "lane / 4", &row = terms_are_rows_ ? term : line,
                      &column = terms_are_rows_ ? line : term;
    const Place &down = terms_are_rows_ ? terms : outer, &across = terms_are_rows_ ? outer : terms;
    return fmt::format("fc::load_shared_word({} + ({}) % 4 * 4)",
                       matrix_address(tile_, row, halves(column), plus(down.warp, down.step),
                                      halves(across.step), halves(across.warp)),
                       column);
  }

  const ProductOperand& tile_;
  const TermOrder& order_;
  bool terms_are_rows_;
  std::string swaps_;  ///< whether a lane reads its second term first
};

/// A left operand's block of 16 rows and eight terms.
void load_left(Writer& out, const ProductOperand& a, const ir::AxisLayout& rows,
               const std::string& fragment, const std::string& registers,
               const std::string& first_term, const TermOrder& order) {
  if (!a.transposed && order.apart == in_halves.apart) {
    out.line("fc::load_matrices({}, {});", registers, left_address(a, rows, fragment, "k"));
  } else {
    const Words words(a, order, a.transposed);
    const std::string warp = warp_base(rows), row = times(fragment, 16);
    const Words::Place terms{first_term, "k * 8"};
    words.read(out, registers + "[0]", registers + "[2]", {warp, row}, terms);
    words.read(out, registers + "[1]", registers + "[3]", {warp, plus(row, "8")}, terms);
  }
  out.line("fc::round_tf32({});", registers);
}

/// A right operand's block of eight terms and 16 columns.
void load_right(Writer& out, const Product& p, const TermOrder& order) {
  const ProductOperand& b = p.right;
  out.line("fc::u32 b[4];");
  if (b.transposed && order.apart == in_halves.apart) {
    out.line("fc::load_matrices(b, {});",
             matrix_address(b, plus(warp_base(p.columns), "lane % 8 + lane / 16 * 8"),
                            "lane / 8 % 2 * 8", "j * 16", "k * 16"));
  } else {
    const Words words(b, order, !b.transposed);
    const std::string warp = warp_base(p.columns);
    const Words::Place terms{p.first_term, "k * 8"};
    words.read(out, "b[0]", "b[1]", {warp, "j * 16"}, terms);
    words.read(out, "b[2]", "b[3]", {warp, "j * 16 + 8"}, terms);
  }
  out.line("fc::round_tf32(b);");
}

void print_product(const Product& p) {
  const TermOrder order = order_of(p);
  const std::string i = p.rows.fragments > 1 ? "i" : "0";
  auto inner = p.out.unrolled("k", p.terms / 8);
  std::string a = fmt::format("a[{}]", i);
  if (p.left.ordered) {
    a = fmt::format("{}[{}][k]", p.left.base, i);
  } else {
    p.out.line("fc::u32 a[{}][4];", p.rows.fragments);
    const auto down = p.out.repeated("i", p.rows.fragments);
    if (p.left.buffer)
      load_left(p.out, p.left, p.rows, i, a, p.first_term, order);
    else
      p.out.line("fc::round_sums_tf32({}, {}[{}][k]);", a, p.left.base, i);
  }
  auto across = p.out.unrolled("j", p.columns.fragments / 2);
  load_right(p.out, p, order);
  const auto down = p.out.repeated("i", p.rows.fragments);
  p.out.line("fc::multiply_tf32({}[{}][2 * j], {}, b[0], b[1]);", p.sums, i, a);
  p.out.line("fc::multiply_tf32({}[{}][2 * j + 1], {}, b[2], b[3]);", p.sums, i, a);
}

void print_left_load(const LeftOperandLoad& load) {
  load.out.line("fc::u32 {}[{}][{}][4];", load.array, load.rows.fragments, load.terms / 8);
  auto i = load.out.unrolled("i", load.rows.fragments, false);
  auto k = load.out.unrolled("k", load.terms / 8);
  load_left(load.out, load.source, load.rows, "i", load.array + "[i][k]", "0", in_halves);
}

}  // namespace

constexpr TensorInstruction mma_m16n8k8_tf32{
    .name = Instruction::mma_m16n8k8_tf32,
    .available = &Target::tf32,
    .instead = "a target from sm_80 up, or a cast of the operands to f16",
    .takes = [](DType dtype) { return dtype == DType::f32; },
    .column_step = 16,  // ldmatrix brings two instructions' columns
    .takes_sums = true,
    .print_product = print_product,
    .print_left_load = print_left_load};

}  // namespace flashcore
