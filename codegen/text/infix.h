// Operators between two operands, as C++ and as the authors of expressions write them.
#pragma once

#include <string_view>

#include "dsl/ir/op.h"

namespace flashcore {

struct Infix {
  ir::OpCode code;
  std::string_view cpp;     ///< empty where C++ has no such operator, or another meaning for it
  std::string_view author;  ///< empty where authors do not write it
  int level;                ///< how tightly the author's binds
};

constexpr int comparison_level = 4;

/// The row of an operation; an empty one for what is no operator.
constexpr Infix infix(ir::OpCode code) {
  using ir::OpCode;
  constexpr Infix operators[] = {{OpCode::logical_or, "||", "|", 1},
                                 {OpCode::logical_and, "&&", "&", 2},
                                 {OpCode::lt, "<", "<", comparison_level},
                                 {OpCode::le, "<=", "<=", comparison_level},
                                 {OpCode::gt, ">", ">", comparison_level},
                                 {OpCode::ge, ">=", ">=", comparison_level},
                                 {OpCode::eq, "==", "==", comparison_level},
                                 {OpCode::ne, "!=", "!=", comparison_level},
                                 {OpCode::add, "+", "+", 5},
                                 {OpCode::sub, "-", "-", 5},
                                 {OpCode::mul, "*", "*", 6},
                                 {OpCode::quotient, "/", "", 6},
                                 {OpCode::div, "", "/", 6},
                                 {OpCode::mod, "", "%", 6}};
  for (const Infix& row : operators)
    if (row.code == code) return row;
  return {code, "", "", 0};
}

}  // namespace flashcore
