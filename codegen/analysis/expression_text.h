// Conditions on positions as their author would write them: `cols <= rows + length(cols)`.
#pragma once

#include <map>
#include <string>

#include "dsl/ir/affine.h"
#include "dsl/ir/function.h"

namespace flashcore {

/// What positions and lengths are called, where not by their axes: {"rows": "q_idx",
/// "length(rows)": "q_len"}.
using PositionNames = std::map<std::string, std::string>;

class ExpressionText {
 public:
  ExpressionText(const ir::Function& f, const PositionNames& names) : f_(f), names_(names) {}

  /// A value as an expression of positions, lengths, parameters and tensors.
  /// "..." stands for what is beyond a few lines.
  std::string of(ir::ValueId value) {
    written_ = 0;
    return at(value, 0);
  }

  /// A linear term that is at least 0 where it holds, solved for the position along `axis`.
  std::string bound(const AffineForm& term, ir::AxisId axis);

 private:
  struct Written {
    std::string text;
    int level;  ///< how tightly it binds
  };
  Written write(ir::ValueId value);
  /// Parentheses go around what binds less tightly than `level`.
  std::string at(ir::ValueId value, int level);
  std::string source(ir::OpCode code, ir::AxisId axis) const;
  std::string named(ir::ValueId value) const;

  const ir::Function& f_;
  const PositionNames& names_;
  int written_ = 0;  ///< operations of the text in the making
};

}  // namespace flashcore
