// Values as authors of expressions write them (dsl/expression.h): operators, with parentheses where
// one of them binds less tightly than what stands around it, lookups and functions.
#pragma once

#include <string>
#include <string_view>

#include "dsl/ir/function.h"

namespace flashcore {

/// What has no operands, and which values stand under a name, is up to who writes.
class ExpressionWriter {
 public:
  /// How tightly a piece of text binds.
  enum Tightness { loosest, disjunct, conjunct, comparison, sum, product, prefix, whole };

  /// An operator between two operands; an empty one for any other operation.
  struct Infix {
    ir::OpCode code{};
    std::string_view sign;
    Tightness tightness = whole;
  };
  static Infix infix(ir::OpCode code);

 protected:
  struct Piece {
    std::string text;
    Tightness tightness = whole;
  };

  /// With `logic_apart` operations stand in parentheses where they are operands of `&`, `|` and `~`.
  ExpressionWriter(const ir::Function& f, bool logic_apart) : f_(f), logic_apart_(logic_apart) {}
  ~ExpressionWriter() = default;

  virtual Piece piece(ir::ValueId value) = 0;
  /// A value in parentheses if it binds less tightly than `least`.
  std::string write(ir::ValueId value, Tightness least = loosest);
  /// An elementwise operation on its operands.
  Piece applied(const ir::Op& op);

  const ir::Function& f_;

 private:
  std::string list(const ir::Op& op);
  const bool logic_apart_;
};

}  // namespace flashcore
