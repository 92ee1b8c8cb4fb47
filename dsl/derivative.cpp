#include "dsl/derivative.h"

#include <cmath>
#include <map>
#include <numbers>
#include <optional>

#include "dsl/handles.h"
#include "dsl/program_builder.h"

namespace flashcore {
namespace {

using ir::OpCode;

class ForwardMode {
 public:
  ForwardMode(ProgramBuilder& builder, const Tile& by) : builder_(builder), by_(by) {}

  /// Nothing for a value that does not depend on `by`.
  std::optional<Tile> of(ir::ValueId value) {
    if (value == by_.id()) return builder_.constant(1);
    const auto known = known_.find(value.index);
    if (known != known_.end()) return known->second;
    const ir::Op* op = builder_.function().definition(value);
    std::optional<Tile> result;
    if (op != nullptr && builder_.function()[value].type.dtype == DType::f32) {
      // A copy: what is appended below moves the ops of the program.
      const ir::Op copy = *op;
      if (ir::kind_of(copy.code) == ir::OpKind::elementwise) result = rule(copy, tile(value));
    }
    known_.emplace(value.index, result);
    return result;
  }

 private:
  [[nodiscard]] Tile tile(ir::ValueId value) const { return {&builder_, value}; }

  std::optional<Tile> rule(const ir::Op& op, const Tile& result) {
    const auto operand = [&](std::size_t i) { return tile(op.operands[i]); };
    switch (op.code) {
      case OpCode::add:
        return sum(of(op.operands[0]), of(op.operands[1]));
      case OpCode::sub:
        return sum(of(op.operands[0]), negated(of(op.operands[1])));
      case OpCode::mul:
        return sum(times(of(op.operands[0]), operand(1)), times(of(op.operands[1]), operand(0)));
      case OpCode::fma:
        return sum(
            sum(times(of(op.operands[0]), operand(1)), times(of(op.operands[1]), operand(0))),
            of(op.operands[2]));
      case OpCode::div: {
        const std::optional<Tile> by_divisor = times(of(op.operands[1]), result);
        const std::optional<Tile> above = sum(of(op.operands[0]), negated(by_divisor));
        if (!above) return {};
        return *above / operand(1);
      }
      case OpCode::min:
        return either(operand(0) <= operand(1), of(op.operands[0]), of(op.operands[1]));
      case OpCode::max:
        return either(operand(0) >= operand(1), of(op.operands[0]), of(op.operands[1]));
      case OpCode::where:
        return either(operand(0), of(op.operands[1]), of(op.operands[2]));
      default:
        break;
    }
    if (op.operands.size() != 1) return {};
    const std::optional<Tile> inner = of(op.operands[0]);
    if (!inner) return {};
    const std::optional<Tile> outer = slope(op.code, operand(0), result);
    return outer ? times(inner, *outer) : std::nullopt;
  }

  /// The derivative of a function of one value, f(a); nothing where it is 0 everywhere.
  std::optional<Tile> slope(OpCode code, const Tile& a, const Tile& f) {
    switch (code) {
      case OpCode::neg:
        return builder_.constant(-1);
      case OpCode::cast:
        return builder_.constant(1);
      case OpCode::abs:
        return where(a >= 0, 1.F, builder_.constant(-1));
      case OpCode::exp:
        return f;
      case OpCode::exp2:
        return f * std::numbers::ln2;
      case OpCode::log:
        return reciprocal(a);
      case OpCode::log2:
        return reciprocal(a) * (1 / std::numbers::ln2);
      case OpCode::sqrt:
        return 0.5F / f;
      case OpCode::tanh:
        return 1.F - f * f;
      case OpCode::sin:
        return cos(a);
      case OpCode::cos:
        return -sin(a);
      case OpCode::tan:
        return 1.F + f * f;
      case OpCode::atan:
        return reciprocal(1.F + a * a);
      case OpCode::erf:
        return exp(-(a * a)) * (2 / std::sqrt(std::numbers::pi));
      case OpCode::expm1:
        return f + 1.F;
      case OpCode::log1p:
        return reciprocal(1.F + a);
      case OpCode::reciprocal:
        return -(f * f);
      default:  // floor, round
        return {};
    }
  }

  std::optional<Tile> sum(const std::optional<Tile>& a, const std::optional<Tile>& b) {
    if (!a || !b) return a ? a : b;
    return *a + *b;
  }
  std::optional<Tile> negated(const std::optional<Tile>& a) {
    if (!a) return {};
    return -*a;
  }
  /// Without the factor 1 that the derivative starts with.
  std::optional<Tile> times(const std::optional<Tile>& a, const Tile& b) {
    if (!a) return {};
    const ir::Op* op = builder_.function().definition(a->id());
    if (op != nullptr && op->code == OpCode::constant && op->number == 1) return b;
    return *a * b;
  }
  std::optional<Tile> either(const Tile& condition, const std::optional<Tile>& yes,
                             const std::optional<Tile>& no) {
    if (!yes && !no) return {};
    return where(condition, yes ? Operand(*yes) : Operand(0.F), no ? Operand(*no) : Operand(0.F));
  }

  ProgramBuilder& builder_;
  const Tile by_;
  std::map<std::uint32_t, std::optional<Tile>> known_;
};

}  // namespace

Tile derivative(const Tile& value, const Tile& by) {
  require_own(value.owner(), by.owner(), "tile", {});
  ProgramBuilder& builder = *value.owner();
  if (by.dtype() != DType::f32 || value.dtype() != DType::f32)
    throw SpecError({"a derivative of values that are not f32",
                     "other dtypes are for memory, products and positions",
                     "cast(tile, DType::f32)",
                     {}});
  const std::optional<Tile> found = ForwardMode(builder, by).of(value.id());
  return found ? *found : builder.constant(0);
}

}  // namespace flashcore
