#include "codegen/analysis/expression_text.h"

#include <cstdlib>

#include <fmt/format.h>

namespace flashcore {

using namespace ir;

std::string ExpressionText::source(OpCode code, AxisId axis) const {
  const std::string& name = f_[axis].name;
  const std::string text = code == OpCode::extent ? fmt::format("length({})", name) : name;
  const auto found = names_.find(text);
  return found == names_.end() ? text : found->second;
}

ExpressionText::Piece ExpressionText::piece(ValueId value) {
  constexpr int most = 200;
  if (++written_ > most) return {"..."};
  const Op* op = f_.definition(value);
  const std::string& name = f_[value].name;
  if (!op) return {name.empty() ? "a carried value" : name};
  switch (op->code) {
    case OpCode::constant:
      return {fmt::format("{}", op->number), op->number < 0 ? prefix : whole};
    case OpCode::parameter:
      return {f_[op->parameter].name};
    case OpCode::extent:
    case OpCode::index:
      return {source(op->code, op->axis)};
    default:
      break;
  }
  if (kind_of(op->code) != OpKind::elementwise)
    return {name.empty() ? std::string(name_of(op->code)) : name};
  const bool widens = op->code == OpCode::cast && is_half(f_[op->operands[0]].type.dtype);
  return widens ? piece(op->operands[0]) : applied(*op);
}

std::string ExpressionText::bound(const AffineForm& term, AxisId axis) {
  const std::int64_t factor = term.positions.at(axis);
  // Across the comparison every sign turns where the position counts positively.
  const std::int64_t sign = factor > 0 ? -1 : 1;
  std::string text;
  const auto add = [&](std::int64_t by, const std::string& what) {
    const std::int64_t size = std::abs(by);
    const std::string product = what.empty() ? fmt::format("{}", size)
                                : size == 1  ? what
                                             : fmt::format("{} * {}", size, what);
    const bool less = by * sign < 0;
    text += text.empty() ? (less ? "-" : "") + product : (less ? " - " : " + ") + product;
  };
  for (const bool positive : {true, false}) {
    const auto counts = [&](std::int64_t by) { return by != 0 && (by * sign > 0) == positive; };
    for (const auto& [other, by] : term.positions)
      if (other != axis && counts(by)) add(by, source(OpCode::index, other));
    for (const auto& [quotient, by] : term.quotients)
      if (counts(by))
        add(by, fmt::format("({} // {})", source(OpCode::index, quotient.first), quotient.second));
    for (const auto& [scalar, by] : term.scalars)
      if (counts(by)) add(by, of(scalar, product));
    if (counts(term.constant)) add(term.constant, "");
  }
  if (text.empty()) text = "0";
  const std::string times = std::abs(factor) == 1 ? "" : fmt::format("{} * ", std::abs(factor));
  return fmt::format("{}{} {} {}", times, source(OpCode::index, axis),
                     factor > 0 ? ">=" : "<=", text);
}

}  // namespace flashcore
