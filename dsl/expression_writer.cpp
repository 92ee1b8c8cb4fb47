#include <cmath>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "dsl/error.h"
#include "dsl/expression_text.h"
#include "dsl/ir/function.h"

namespace flashcore {
namespace {

using namespace ir;

/// How tightly a piece of text binds.
enum Tightness { loosest, disjunct, conjunct, comparison, sum, product, prefix, whole };

struct Piece {
  std::string text;
  Tightness tightness = whole;
};

class Writer {
 public:
  explicit Writer(const Function& f) : f_(f), uses_(f.values.size()), pieces_(f.values.size()) {
    for (const Parameter& parameter : f.parameters) taken_.insert(parameter.name);
    for (const ir::Tensor& tensor : f.tensors) taken_.insert(tensor.name);
  }

  std::string run(ValueId value) {
    count(value);
    const std::string result = piece(value).text;
    return lets_ + result;
  }

 private:
  void count(ValueId value) {
    if (uses_[value.index]++ > 0) return;
    if (const Op* op = f_.definition(value))
      for (ValueId operand : op->operands) count(operand);
  }

  const Piece& piece(ValueId value) {
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

  /// The operand as text, in parentheses if it binds less tightly than `least`.
  std::string operand(const Op& op, std::size_t i, Tightness least) {
    const Piece& made = piece(op.operands[i]);
    return made.tightness < least ? "(" + made.text + ")" : made.text;
  }

  Piece infix(const Op& op, std::string_view sign, Tightness tightness) {
    // Operations of one level group to the left; comparisons stand in parentheses under logic.
    const auto looser = tightness <= conjunct ? prefix : tightness == comparison ? sum : tightness;
    const auto right =
        tightness <= conjunct ? prefix : static_cast<Tightness>(looser + (tightness > comparison));
    const bool chain = tightness <= conjunct && piece(op.operands[0]).tightness == tightness;
    return {fmt::format("{} {} {}", operand(op, 0, chain ? tightness : looser), sign,
                        operand(op, 1, right)),
            tightness};
  }

  Piece call(const Op& op, std::string_view name) {
    std::string text(name);
    for (std::size_t i = 0; i < op.operands.size(); ++i)
      text += (i ? ", " : "(") + operand(op, i, loosest);
    return {text + ")"};
  }

  static std::string number(double value, DType dtype) {
    if (dtype == DType::i1) return value != 0 ? "true" : "false";
    if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
    std::string text = fmt::format("{}", value);
    if (is_float(dtype) && text.find_first_of(".e") == std::string::npos) text += ".0";
    return text;
  }

  Piece make(ValueId value) {
    const Op* op = f_.definition(value);
    if (!op) throw InternalError("an expression with a loop in it");
    const DType dtype = f_[value].type.dtype;
    switch (op->code) {
      case OpCode::constant: {
        const std::string text = number(op->number, dtype);
        return {text, text.starts_with("-") ? prefix : whole};
      }
      case OpCode::parameter:
        return {f_[op->parameter].name};
      case OpCode::gather: {
        std::string text = f_[op->tensor].name;
        for (std::size_t i = 0; i < op->operands.size(); ++i)
          text += (i ? ", " : "[") + (op->wraps >> i & 1 ? "wrap(" + operand(*op, i, loosest) + ")"
                                                         : operand(*op, i, loosest));
        return {text + "]"};
      }
      case OpCode::neg:
        return {"-" + operand(*op, 0, prefix), prefix};
      case OpCode::logical_not:
        return {"~" + operand(*op, 0, whole), prefix};
      case OpCode::add:
        return infix(*op, "+", sum);
      case OpCode::sub:
        return infix(*op, "-", sum);
      case OpCode::mul:
        return infix(*op, "*", product);
      case OpCode::div:
        return infix(*op, is_float(dtype) ? "/" : "//", product);
      case OpCode::mod:
        return infix(*op, "%", product);
      case OpCode::lt:
        return infix(*op, "<", comparison);
      case OpCode::le:
        return infix(*op, "<=", comparison);
      case OpCode::gt:
        return infix(*op, ">", comparison);
      case OpCode::ge:
        return infix(*op, ">=", comparison);
      case OpCode::eq:
        return infix(*op, "==", comparison);
      case OpCode::ne:
        return infix(*op, "!=", comparison);
      case OpCode::logical_and:
        return infix(*op, "&", conjunct);
      case OpCode::logical_or:
        return infix(*op, "|", disjunct);
      case OpCode::reciprocal:
        return {"1.0 / " + operand(*op, 0, prefix), product};
      case OpCode::cast:
        return call(*op, is_float(dtype) ? "float" : "int");
      case OpCode::abs:
      case OpCode::min:
      case OpCode::max:
      case OpCode::where:
      case OpCode::exp:
      case OpCode::exp2:
      case OpCode::log:
      case OpCode::log2:
      case OpCode::sqrt:
      case OpCode::tanh:
      case OpCode::sin:
      case OpCode::cos:
      case OpCode::tan:
      case OpCode::atan:
      case OpCode::erf:
      case OpCode::expm1:
      case OpCode::log1p:
      case OpCode::round:
      case OpCode::floor:
        return call(*op, name_of(op->code));
      default:
        throw SpecError({fmt::format("an expression with {} in it", name_of(op->code)),
                         "masks and scores are computed element by element",
                         "use arithmetic, comparisons, where, min, max and captured tensors",
                         op->where});
    }
  }

  const Function& f_;
  std::vector<int> uses_;
  std::vector<Piece> pieces_;
  std::set<std::string> taken_;
  std::string lets_;
  int next_ = 1;
};

}  // namespace

std::string write_expression(const Function& f, ValueId value) { return Writer(f).run(value); }

}  // namespace flashcore
