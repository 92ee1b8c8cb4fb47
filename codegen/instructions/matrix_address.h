// Left operands by ldmatrix, and the addresses that the lanes of a warp give it.
#pragma once

#include <string>

#include "codegen/instructions/product.h"

namespace flashcore {

/// One lane's address of the matrices at (row_step, column_step); with `warp_column` so many
/// columns further, a number that depends on the warp. Columns count 16 bits, whatever the elements
/// are.
inline std::string matrix_address(const ProductOperand& operand, const std::string& row,
                                  const std::string& column, const std::string& row_step,
                                  const std::string& column_step,
                                  const std::string& warp_column = "0") {
  const ir::Buffer& tile = *operand.buffer;
  return fmt::format("fc::matrix_address<{}, {}{}>({}, {}, {}, {}, {})", tile.rows,
                     tile.columns * size_of(tile.dtype) / 2, warp_column == "0" ? "" : ", true",
                     operand.base, row, column, row_step, plus(warp_column, column_step));
}

/// The address a lane gives for the left operand's 16 x 16 block at (fragment, step). The four 8 x
/// 8 matrices come in the order of the instruction's registers: down first, then right.
inline std::string left_address(const ProductOperand& a, const ir::AxisLayout& rows,
                                const std::string& fragment, const std::string& step) {
  const std::string row = times(fragment, 16), inner = times(step, 16);
  if (!a.transposed)
    return matrix_address(a, plus(warp_base(rows), "lane % 16"), "lane / 16 * 8", row, inner);
  return matrix_address(a, "lane % 8 + lane / 16 * 8", "lane / 8 % 2 * 8", inner, row,
                        warp_base(rows));
}

inline void load_left(Writer& out, const ProductOperand& a, const ir::AxisLayout& rows,
                      const std::string& fragment, const std::string& registers) {
  out.line("fc::load_matrices{}({}, {});", a.transposed ? "_transposed" : "", registers,
           left_address(a, rows, fragment, "k"));
}

/// A left operand of 16 bits, for all iterations of a loop.
inline void print_left_load_of_halves(const LeftOperandLoad& load) {
  load.out.line("fc::u32 {}[{}][{}][4];", load.array, load.rows.fragments, load.terms / 16);
  auto i = load.out.unrolled("i", load.rows.fragments, false);
  auto k = load.out.unrolled("k", load.terms / 16, false);
  load_left(load.out, load.source, load.rows, "i", load.array + "[i][k]");
}

}  // namespace flashcore
