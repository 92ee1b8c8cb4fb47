// A tanh is computed with an absolute error of 2e-7, by two results of the special function unit.
// The error of a softcapped score is that times the cap: nothing at a cap of 50, a quarter at 1e6,
// and at 1e8 more than weights of f16 have room for. So the pass asks for a small relative error,
// at twice the instructions, where the factor behind a tanh is large or not known to the compiler:
//
//   t = tanh x ; s = mul t, c        becomes        t = tanh x precise ; s = mul t, c
#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "codegen/analysis/value_bounds.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

/// Times 2e-7 it is what may be added to an exponent: less than 16-bit weights are rounded by.
constexpr double most = 2048;

class Amplification {
 public:
  explicit Amplification(const Function& f) : f_(f), bounds_(f), readers_(f.values.size()) {
    for_each_op(f, f.body, [&](const Op& op, BlockId) {
      for (ValueId operand : op.operands) readers_[operand.index].push_back(&op);
    });
  }

  /// By what an error of the value is multiplied at most, until it is an exponent, or is stored.
  double of(ValueId value) {
    const auto [known, fresh] = known_.try_emplace(value, 1);
    if (!fresh) return known->second;
    double largest = 1;
    for (const Op* reader : readers_[value.index])
      for (std::size_t k = 0; k < reader->operands.size(); ++k)
        if (reader->operands[k] == value) largest = std::max(largest, through(*reader, k));
    return known_[value] = largest;
  }

 private:
  double through(const Op& op, std::size_t operand) {
    switch (op.code) {
      case OpCode::mul:
      case OpCode::mul_rn:
        return of(op.results[0]) * bounds_.of(op.operands[1 - operand]).magnitude();
      case OpCode::fma:
        return of(op.results[0]) *
               (operand < 2 ? bounds_.of(op.operands[1 - operand]).magnitude() : 1);
      case OpCode::div: {
        const double* divisor = constant_of(f_, op.operands[1]);
        return operand == 0 && divisor ? of(op.results[0]) / std::abs(*divisor) : INFINITY;
      }
      case OpCode::log:
      case OpCode::log2:
      case OpCode::log1p:
      case OpCode::sqrt:
      case OpCode::reciprocal:
        return INFINITY;  // steep at zero
      case OpCode::exp:
      case OpCode::exp2:
        return 1;
      default:
        break;
    }
    const bool passes_on = kind_of(op.code) == OpKind::elementwise ||
                           kind_of(op.code) == OpKind::reduction || op.code == OpCode::transpose;
    return passes_on && f_[op.results[0]].type.dtype == DType::f32 ? of(op.results[0]) : 1;
  }

  const Function& f_;
  ValueBounds bounds_;
  std::vector<std::vector<const Op*>> readers_;
  std::map<ValueId, double> known_;
};

}  // namespace

void precise_tanh(Function& f, const PassContext&) {
  std::vector<OpId> tanhs;
  for_each_op(f, f.body, [&](const Op& op, BlockId) {
    if (op.code == OpCode::tanh) tanhs.push_back(f[op.results[0]].definition);
  });
  if (tanhs.empty()) return;
  Amplification amplification(f);
  for (OpId id : tanhs) f[id].precise = amplification.of(f[id].results[0]) > most;
}

}  // namespace flashcore
