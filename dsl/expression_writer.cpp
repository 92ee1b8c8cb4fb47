#include "dsl/expression_writer.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "dsl/error.h"
#include "dsl/expression_text.h"

namespace flashcore {

using namespace ir;

ExpressionWriter::Infix ExpressionWriter::infix(OpCode code) {
  static constexpr Infix operators[] = {{OpCode::logical_or, "|", disjunct},
                                        {OpCode::logical_and, "&", conjunct},
                                        {OpCode::lt, "<", comparison},
                                        {OpCode::le, "<=", comparison},
                                        {OpCode::gt, ">", comparison},
                                        {OpCode::ge, ">=", comparison},
                                        {OpCode::eq, "==", comparison},
                                        {OpCode::ne, "!=", comparison},
                                        {OpCode::add, "+", sum},
                                        {OpCode::sub, "-", sum},
                                        {OpCode::mul, "*", product},
                                        {OpCode::div, "/", product},
                                        {OpCode::mod, "%", product}};
  const auto found = std::ranges::find(operators, code, &Infix::code);
  return found == std::end(operators) ? Infix{} : *found;
}

std::string ExpressionWriter::write(ValueId value, Tightness least) {
  const Piece made = piece(value);
  return made.tightness < least ? "(" + made.text + ")" : made.text;
}

std::string ExpressionWriter::list(const Op& op) {
  std::string text;
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    const std::string operand = write(op.operands[i]);
    text += (i ? ", " : "") + (op.wraps >> i & 1 ? "wrap(" + operand + ")" : operand);
  }
  return text;
}

ExpressionWriter::Piece ExpressionWriter::applied(const Op& op) {
  const bool integers = !is_float(f_[op.results[0]].type.dtype);
  if (const auto [code, sign, tightness] = infix(op.code); !sign.empty()) {
    // Operations of one level group to the left; comparisons stand alone.
    const auto tighter = static_cast<Tightness>(tightness + 1);
    Tightness left = tightness == comparison ? tighter : tightness, right = tighter;
    if (logic_apart_ && tightness <= conjunct) {
      right = prefix;
      if (piece(op.operands[0]).tightness != tightness) left = prefix;
    }
    // Parts get their names as they are written, so that the order is not the compiler's to choose.
    const std::string b = write(op.operands[1], right), a = write(op.operands[0], left);
    return {fmt::format("{} {} {}", a, code == OpCode::div && integers ? "//" : sign, b),
            tightness};
  }
  switch (op.code) {
    case OpCode::neg:
      return {"-" + write(op.operands[0], prefix), prefix};
    case OpCode::logical_not:
      return {"~" + write(op.operands[0], logic_apart_ ? whole : prefix), prefix};
    case OpCode::gather:
      return {fmt::format("{}[{}]", f_[op.tensor].name, list(op))};
    case OpCode::cast:
      return {fmt::format("{}({})", integers ? "int" : "float", list(op))};
    default:
      return {fmt::format("{}({})", name_of(op.code), list(op))};
  }
}

namespace {

std::string number(double value, DType dtype) {
  if (dtype == DType::i1) return value != 0 ? "true" : "false";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string text = fmt::format("{}", value);
  if (is_float(dtype) && text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

/// Operations that authors have no word for.
constexpr OpCode of_passes[] = {OpCode::fma, OpCode::mul_rn, OpCode::limit_scale, OpCode::quotient};

/// Writes what a reader reads as the same values: "t1 = a - b; t1 * t1".
class LetWriter final : ExpressionWriter {
 public:
  explicit LetWriter(const Function& f)
      : ExpressionWriter(f, /*logic_apart=*/true),
        uses_(f.values.size()),
        pieces_(f.values.size()) {
    for (const Parameter& parameter : f.parameters) taken_.insert(parameter.name);
    for (const ir::Tensor& tensor : f.tensors) taken_.insert(tensor.name);
  }

  std::string run(ValueId value) {
    count(value);
    const std::string result = write(value);
    return lets_ + result;
  }

 private:
  void count(ValueId value) {
    if (uses_[value.index]++ > 0) return;
    if (const Op* op = f_.definition(value))
      for (ValueId operand : op->operands) count(operand);
  }

  Piece piece(ValueId value) override {
    Piece& known = pieces_[value.index];
    if (!known.text.empty()) return known;
    Piece made = make(value);
    const Op& op = *f_.definition(value);
    if (uses_[value.index] > 1 && kind_of(op.code) != OpKind::source) {
      std::string name = f_[value].name;
      if (name.empty() || taken_.contains(name)) do
          name = fmt::format("t{}", next_++);
        while (taken_.contains(name));
      taken_.insert(name);
      lets_ += fmt::format("{} = {}; ", name, made.text);
      made = {name, whole};
    }
    return pieces_[value.index] = std::move(made);
  }

  Piece make(ValueId value) {
    const Op* op = f_.definition(value);
    if (!op) throw InternalError("an expression with a loop in it");
    if (op->code == OpCode::parameter) return {f_[op->parameter].name};
    if (op->code == OpCode::constant) {
      const std::string text = number(op->number, f_[value].type.dtype);
      return {text, text.starts_with("-") ? prefix : whole};
    }
    if (op->code == OpCode::reciprocal) return {"1.0 / " + write(op->operands[0], prefix), product};
    if (kind_of(op->code) != OpKind::elementwise || std::ranges::count(of_passes, op->code) > 0)
      throw SpecError({fmt::format("an expression with {} in it", name_of(op->code)),
                       "masks and scores are computed element by element",
                       "use arithmetic, comparisons, where, min, max and captured tensors",
                       op->where});
    return applied(*op);
  }

  std::vector<int> uses_;
  std::vector<Piece> pieces_;
  std::set<std::string> taken_;
  std::string lets_;
  int next_ = 1;
};

}  // namespace

std::string write_expression(const Function& f, ValueId value) { return LetWriter(f).run(value); }

}  // namespace flashcore
