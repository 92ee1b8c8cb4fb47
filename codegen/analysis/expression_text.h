// Conditions on positions as their author would write them: `cols <= rows + length(cols)`.
#pragma once

#include <map>
#include <string>

#include "dsl/expression_writer.h"
#include "dsl/ir/affine.h"
#include "dsl/ir/function.h"

namespace flashcore {

/// What positions and lengths are called, where not by their axes: {"rows": "q_idx",
/// "length(rows)": "q_len"}.
using PositionNames = std::map<std::string, std::string>;

class ExpressionText final : ExpressionWriter {
 public:
  ExpressionText(const ir::Function& f, const PositionNames& names)
      : ExpressionWriter(f, /*logic_apart=*/false), names_(names) {}

  /// A value as an expression of positions, lengths, parameters and tensors.
  /// "..." stands for what is beyond a few lines.
  std::string of(ir::ValueId value, Tightness least = loosest) {
    written_ = 0;
    return write(value, least);
  }

  /// A linear term that is at least 0 where it holds, solved for the position along `axis`.
  std::string bound(const AffineForm& term, ir::AxisId axis);

 private:
  Piece piece(ir::ValueId value) override;
  std::string source(ir::OpCode code, ir::AxisId axis) const;

  const PositionNames& names_;
  int written_ = 0;  ///< operations of the text in the making
};

}  // namespace flashcore
