// What the text of one product is made of: the printer has named everything, and the instruction
// says how it is multiplied.
#pragma once

#include <string>
#include <string_view>

#include "codegen/text/index_text.h"
#include "codegen/text/writer.h"
#include "dsl/ir/function.h"
#include "dsl/ir/layout.h"

namespace flashcore {

struct ProductOperand {
  std::string base;                    ///< the array of registers, or the address in shared memory
  const ir::Buffer* buffer = nullptr;  ///< in shared memory; none: in registers
  bool transposed = false;             ///< shared memory has it the other way round
  bool ordered = false;  ///< registers have it as the instruction takes it; else they are sums
};

struct Product {
  Writer& out;
  std::string_view element;  ///< type of both operands
  std::string sums;          ///< the array that they are added to
  bool adds = false;         ///< it holds what the product is added to
  bool pinned = false;       ///< and is pinned: since that was computed, or by a product in flight
  ProductOperand left, right;
  ir::AxisLayout rows, columns;  ///< of the sums
  int terms = 0;                 ///< that a warp adds up
  std::string first_term = "0";  ///< where they begin
};

/// A left operand on its way from shared memory into registers, which keep it for several products.
struct LeftOperandLoad {
  Writer& out;
  std::string_view element;
  std::string array;      ///< to be declared
  ProductOperand source;  ///< in shared memory
  ir::AxisLayout rows;    ///< of the products' sums
  int terms = 0;
};

}  // namespace flashcore
