#include "codegen/analysis/expression_text.h"

#include <cstdlib>

#include <fmt/format.h>

#include "codegen/text/infix.h"

namespace flashcore {

using namespace ir;

namespace {

constexpr int unary = 8, atom = 9;

}  // namespace

std::string ExpressionText::source(OpCode code, AxisId axis) const {
  const std::string& name = f_[axis].name;
  const std::string text = code == OpCode::extent ? fmt::format("length({})", name) : name;
  const auto found = names_.find(text);
  return found == names_.end() ? text : found->second;
}

std::string ExpressionText::named(ValueId value) const {
  const Op* op = f_.definition(value);
  if (!f_[value].name.empty()) return f_[value].name;
  return op ? std::string(name_of(op->code)) : "a carried value";
}

std::string ExpressionText::at(ValueId value, int level) {
  const Written written = write(value);
  return written.level < level ? "(" + written.text + ")" : written.text;
}

ExpressionText::Written ExpressionText::write(ValueId value) {
  constexpr int most = 200;
  if (++written_ > most) return {"...", atom};
  const Op* op = f_.definition(value);
  if (!op) return {named(value), atom};
  const auto& x = op->operands;
  const bool integers = f_[value].type.dtype == DType::i32;
  if (const Infix by = infix(op->code); !by.author.empty()) {
    // Left to right; comparisons stand alone.
    const int left = by.level == comparison_level ? by.level + 1 : by.level;
    const std::string_view sign = op->code == OpCode::div && integers ? "//" : by.author;
    return {fmt::format("{} {} {}", at(x[0], left), sign, at(x[1], by.level + 1)), by.level};
  }
  switch (op->code) {
    case OpCode::constant:
      return {fmt::format("{}", op->number), op->number < 0 ? unary : atom};
    case OpCode::parameter:
      return {f_[op->parameter].name, atom};
    case OpCode::extent:
    case OpCode::index:
      return {source(op->code, op->axis), atom};
    case OpCode::neg:
      return {"-" + at(x[0], unary), unary};
    case OpCode::logical_not:
      return {"~" + at(x[0], unary), unary};
    default:
      break;
  }
  if (kind_of(op->code) != OpKind::elementwise) return {named(value), atom};
  if (op->code == OpCode::cast && is_half(f_[x[0]].type.dtype)) return write(x[0]);
  std::string list;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::string operand = at(x[i], 0);
    list += (i ? ", " : "") + (op->wraps >> i & 1 ? "wrap(" + operand + ")" : operand);
  }
  if (op->tensor) return {fmt::format("{}[{}]", f_[op->tensor].name, list), atom};
  const std::string name(op->code == OpCode::cast ? (integers ? "int" : "float")
                                                  : name_of(op->code));
  return {fmt::format("{}({})", name, list), atom};
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
      if (counts(by)) {
        written_ = 0;
        add(by, at(scalar, 6));
      }
    if (counts(term.constant)) add(term.constant, "");
  }
  if (text.empty()) text = "0";
  const std::string times = std::abs(factor) == 1 ? "" : fmt::format("{} * ", std::abs(factor));
  return fmt::format("{}{} {} {}", times, source(OpCode::index, axis),
                     factor > 0 ? ">=" : "<=", text);
}

}  // namespace flashcore
