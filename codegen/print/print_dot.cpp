// Products of m16n8k16: fragments of both operands by ldmatrix, one instruction a 16 x 8 x 16
// block.
#include "codegen/analysis/shared_use.h"
#include "codegen/print/kernel_printer.h"
#include "dsl/error.h"

namespace flashcore {

using namespace ir;

KernelPrinter::SharedOperand KernelPrinter::shared_operand(ValueId value, bool in_place) {
  bool transposed = false;
  const Op* op = f_.definition(value);
  for (; op && op->code == OpCode::transpose; op = f_.definition(op->operands[0])) {
    transposed = !transposed;
    value = op->operands[0];
  }
  std::string base = storage_[value.index];
  if (in_place && home_block_[value.index] != block_) {
    const std::string here = names_.unique(base);
    out_.line("const fc::u32 {} = fc::in_place({});", here, base);
    base = here;
  }
  return {base, &f_[buffer_of(f_, value)], transposed};
}

namespace {

/// One lane's address of the matrices at (row_step, column_step).
std::string matrix_address(const std::string& base, const Buffer& buffer, const std::string& row,
                           const std::string& column, const std::string& row_step,
                           const std::string& column_step) {
  return fmt::format("fc::matrix_address<{}, {}>({}, {}, {}, {}, {})", buffer.rows, buffer.columns,
                     base, row, column, row_step, column_step);
}

std::string plus(const std::string& a, const std::string& b) {
  return a == "0" ? b : a + " + " + b;
}

std::string times(const std::string& index, int step) {
  return index == "0" ? "0" : step == 1 ? index : fmt::format("{} * {}", index, step);
}

}  // namespace

/// Where a warp's share of an axis begins.
std::string KernelPrinter::warp_base(const AxisLayout& layout) {
  if (layout.warps == 1) return "0";
  return fmt::format("{} * {}", warp_number(layout), layout.fragments * layout.fragment_size());
}

/// The address a lane gives for the left operand's 16 x 16 block at (fragment, step). The four 8 x
/// 8 matrices come in the order of the instruction's registers: down first, then right.
std::string KernelPrinter::left_address(const SharedOperand& a, const AxisLayout& rows,
                                        const std::string& fragment,
                                        const std::string& step) const {
  const std::string row = times(fragment, 16), inner = times(step, 16);
  if (!a.transposed)
    return matrix_address(a.base, *a.buffer, plus(warp_base(rows), "lane % 16"), "lane / 16 * 8",
                          row, inner);
  return matrix_address(a.base, *a.buffer, "lane % 8 + lane / 16 * 8", "lane / 8 % 2 * 8", inner,
                        plus(warp_base(rows), row));
}

/// The array of a product's sums: the third operand's own if that dies here.
void KernelPrinter::start_sum(const Op& op) {
  const ValueId value = op.results[0];
  const ValueId sum = op.operands.size() == 3 ? op.operands[2] : ValueId{};
  const Op* start = sum ? f_.definition(sum) : nullptr;
  const bool constant = start && start->code == OpCode::constant;
  if (sum && !constant && dies_at(sum, position_)) {
    storage_[value.index] = storage_[sum.index];
  } else {
    const bool zero = !sum || (constant && start->number == 0);
    declare(value, zero);
    if (!zero) {
      Writer::Scopes scopes;
      const Cursor cursor = open_loops(shape_of(value), scopes);
      out_.line("{} = {};", element(value, cursor), element(sum, cursor));
    }
  }
}

void KernelPrinter::print_dot(const Op& op) {
  if (f_[op.results[0]].home.space == Space::fragments) return print_block_dot(op);
  if (op.started) return print_warpgroup_dot(op);
  const ValueId value = op.results[0], left = op.operands[0];
  const AxisLayout &rows = f_[value].home.axes[0], &columns = f_[value].home.axes[1];
  const bool cuts_sum = op.scope == ReductionScope::warp;
  const AxisLayout inner_layout = cuts_sum ? f_[left].home.axes[1] : AxisLayout{};
  const std::string first = warp_base(inner_layout);
  const int steps = f_[f_[left].type.axes[1]].tile / 16 / inner_layout.warps;
  const std::string_view type = element_type(f_[left].type.dtype);
  const bool left_in_registers = f_[left].home.space == Space::operand;

  std::string text = fmt::format("dot({}, {})", label(left), label(op.operands[1]));
  if (op.operands.size() == 3) text = fmt::format("{} + {}", label(op.operands[2]), text);
  if (cuts_sum) text += ", each warp its share";
  out_.comment(fmt::format("{} = {}", f_[value].name.empty() ? "product" : f_[value].name, text));

  start_sum(op);
  const std::string& d = storage_[value.index];

  const std::string i = rows.fragments > 1 ? "i" : "0";
  const auto over_rows = [&](bool braces, auto body) {
    if (rows.fragments > 1) {
      auto scope = out_.unrolled("i", rows.fragments, braces);
      body();
    } else {
      body();
    }
  };
  const SharedOperand b = shared_operand(op.operands[1]);
  const SharedOperand source = left_in_registers ? SharedOperand{} : shared_operand(left);
  auto inner = out_.unrolled("k", steps);
  std::string a = "a[i]";
  if (left_in_registers) {
    a = fmt::format("{}[{}][k]", storage_[left.index], i);
  } else {
    a = fmt::format("a[{}]", i);
    out_.line("fc::u32 a[{}][4];", rows.fragments);
    over_rows(false, [&] {
      out_.line("fc::load_matrices{}({}, {});", source.transposed ? "_transposed" : "", a,
                left_address(source, rows, i, "k"));
    });
  }
  auto across = out_.unrolled("j", columns.fragments / 2);
  out_.line("fc::u32 b[4];");
  if (b.transposed)
    out_.line(
        "fc::load_matrices(b, {});",
        matrix_address(b.base, *b.buffer, plus(warp_base(columns), "lane % 8 + lane / 16 * 8"),
                       "lane / 8 % 2 * 8", "j * 16", plus(first, "k * 16")));
  else
    out_.line("fc::load_matrices_transposed(b, {});",
              matrix_address(b.base, *b.buffer, plus(first, "lane % 16"), "lane / 16 * 8", "k * 16",
                             plus(warp_base(columns), "j * 16")));
  over_rows(true, [&] {
    out_.line("fc::multiply<{}>({}[{}][2 * j], {}, b[0], b[1]);", type, d, i, a);
    out_.line("fc::multiply<{}>({}[{}][2 * j + 1], {}, b[2], b[3]);", type, d, i, a);
  });
}

}  // namespace flashcore
