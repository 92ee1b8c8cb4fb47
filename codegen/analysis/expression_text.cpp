#include "codegen/analysis/expression_text.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

namespace flashcore {
namespace {

using namespace ir;

/// How an operation is written, and how tightly it binds.
struct Spelling {
  const char* sign;
  int level;
};

constexpr int atom = 9, unary = 8;

Spelling infix(OpCode code, bool integers) {
  switch (code) {
    case OpCode::logical_or: return {"|", 1};
    case OpCode::logical_and: return {"&", 2};
    case OpCode::lt: return {"<", 4};
    case OpCode::le: return {"<=", 4};
    case OpCode::gt: return {">", 4};
    case OpCode::ge: return {">=", 4};
    case OpCode::eq: return {"==", 4};
    case OpCode::ne: return {"!=", 4};
    case OpCode::add: return {"+", 5};
    case OpCode::sub: return {"-", 5};
    case OpCode::mul: return {"*", 6};
    case OpCode::div: return {integers ? "//" : "/", 6};
    case OpCode::mod: return {"%", 6};
    default: return {nullptr, 0};
  }
}

/// The name that the program gives a position or a length; they are the same value wherever they stand.
std::string source_text(const Function& f, OpCode code, AxisId axis) {
  std::string name = code == OpCode::extent ? fmt::format("length({})", f[axis].name) : f[axis].name;
  bool found = false;
  for_each_op(f, f.body, [&](const Op& op, BlockId) {
    if (found || op.code != code || op.axis != axis || f[op.results[0]].name.empty()) return;
    name = f[op.results[0]].name;
    found = true;
  });
  return name;
}

class Writer {
 public:
  explicit Writer(const Function& f) : f_(f) {}

  /// Parentheses go around what binds less tightly than `level`.
  std::string at(ValueId value, int level) {
    const auto [text, own] = write(value);
    return own < level ? "(" + text + ")" : text;
  }

 private:
  std::pair<std::string, int> write(ValueId value) {
    const Op* op = f_.definition(value);
    if (!op) return {named(value), atom};
    const auto& x = op->operands;
    const bool integers = f_[value].type.dtype == DType::i32;
    if (const Spelling by = infix(op->code, integers); by.sign) {
      // Left to right; comparisons stand alone.
      const int left = by.level == 4 ? by.level + 1 : by.level;
      return {fmt::format("{} {} {}", at(x[0], left), by.sign, at(x[1], by.level + 1)), by.level};
    }
    switch (op->code) {
      case OpCode::constant: return {fmt::format("{}", op->number), op->number < 0 ? unary : atom};
      case OpCode::parameter: return {f_[op->parameter].name, atom};
      case OpCode::extent:
      case OpCode::index: return {source_text(f_, op->code, op->axis), atom};
      case OpCode::neg: return {"-" + at(x[0], unary), unary};
      case OpCode::logical_not: return {"~" + at(x[0], unary), unary};
      default: break;
    }
    if (kind_of(op->code) != OpKind::elementwise) return {named(value), atom};
    std::string list;
    for (ValueId operand : x) list += (list.empty() ? "" : ", ") + at(operand, 0);
    if (op->tensor) return {fmt::format("{}[{}]", f_[op->tensor].name, list), atom};
    if (op->code == OpCode::cast)
      return integers || f_[x[0]].type.dtype == DType::i32
                 ? std::pair(fmt::format("{}({})", integers ? "int" : "float", list), atom)
                 : write(x[0]);
    return {fmt::format("{}({})", name_of(op->code), list), atom};
  }

  std::string named(ValueId value) {
    const Op* op = f_.definition(value);
    if (!f_[value].name.empty()) return f_[value].name;
    return op ? std::string(name_of(op->code)) : "a carried value";
  }

  const Function& f_;
};

}  // namespace

std::string expression_text(const Function& f, ValueId value) { return Writer(f).at(value, 0); }

std::string bound_text(const Function& f, const AffineForm& term, AxisId axis) {
  const std::int64_t factor = term.positions.at(axis);
  std::string text;
  // Across the comparison every sign turns where the position counts positively.
  const std::int64_t sign = factor > 0 ? -1 : 1;
  const auto add = [&](std::int64_t by, const std::string& what) {
    by *= sign;
    if (by == 0) return;
    const std::string size = what.empty()             ? fmt::format("{}", std::abs(by))
                             : std::abs(by) == 1 ? what
                                                      : fmt::format("{} * {}", std::abs(by), what);
    text += text.empty() ? (by < 0 ? "-" : "") + size : (by < 0 ? " - " : " + ") + size;
  };
  for (const bool positive : {true, false}) {
    const auto counts = [&](std::int64_t by) { return (by * sign > 0) == positive; };
    for (const auto& [other, by] : term.positions)
      if (other != axis && counts(by)) add(by, source_text(f, OpCode::index, other));
    for (const auto& [scalar, by] : term.scalars)
      if (counts(by)) add(by, Writer(f).at(scalar, 6));
    if (counts(term.constant)) add(term.constant, "");
  }
  if (text.empty()) text = "0";
  const std::string here = source_text(f, OpCode::index, axis);
  return fmt::format("{}{} {} {}", std::abs(factor) == 1 ? "" : fmt::format("{} * ", std::abs(factor)),
                     here, factor > 0 ? ">=" : "<=", text);
}

}  // namespace flashcore
