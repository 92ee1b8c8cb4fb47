// The trees of random expressions: what a node is.
#pragma once

#include <string>
#include <vector>

#include "tests/templates/support/random_expression.h"

namespace flashcore {

enum class Kind { integer, real, condition };

/// `op` is an operator, a function, a name, "[]" (element of the tensor `name`), "a" (part
/// `number`) or "#" (a number).
struct ExpressionNode {
  Kind kind = Kind::integer;
  std::string op;
  std::vector<ExpressionTree> args = {};
  double number = 0;
  std::string name = {};

  double limit = 0;  ///< what its magnitude is at most
  int bits = 0;      ///< of an exact number behind the point; -1: it is rounded
  bool constant = false;
};

}  // namespace flashcore
