#include "codegen/instructions/matrix_address.h"

namespace flashcore {

std::string matrix_address(const ProductOperand& operand, const std::string& row,
                           const std::string& column, const std::string& row_step,
                           const std::string& column_step, const std::string& warp_column) {
  const ir::Buffer& tile = *operand.buffer;
  return fmt::format("fc::matrix_address{}<{}, {}>({}, {}, {}, {}, {})",
                     warp_column == "0" ? "" : "_of_warp", tile.rows,
                     tile.columns * size_of(tile.dtype) / 2, operand.base, row, column, row_step,
                     plus(warp_column, column_step));
}

std::string left_address(const ProductOperand& a, const ir::AxisLayout& rows,
                         const std::string& fragment, const std::string& step) {
  const std::string row = times(fragment, 16), inner = times(step, 16);
  if (!a.transposed)
    return matrix_address(a, plus(warp_base(rows), "lane % 16"), "lane / 16 * 8", row, inner);
  return matrix_address(a, "lane % 8 + lane / 16 * 8", "lane / 8 % 2 * 8", inner, row,
                        warp_base(rows));
}

}  // namespace flashcore
