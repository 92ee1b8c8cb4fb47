// The exponent of a softmax, (x - d) k with one d a row, is one multiply-add an element:
//
//   c = sub x, d                                    t = d k
//   e = mul c, k            becomes                 e = fma x, k, -t
//
// But t is rounded, and x k is not: what the rounding leaves grows with t, beyond all bounds. So
// rows whose t is large subtract first after all, in place, and then nothing behind the product:
//
//   large = |t| >= 4096
//   c  = where large, x - d, x                      left out in warps
//   t' = where large, 0, -t                         without such a row
//   e  = fma c, k, t'
//
// Below that, t is at most 2^-13 off. Rows that have seen nothing yet, whose maximum is the
// smallest number, are large as well, and what is hidden from them stays minus infinity. Nothing is
// large where bounds say so, as for capped scores.
#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "codegen/analysis/value_bounds.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

constexpr double large_exponent = 4096;

class ExponentFusion {
 public:
  explicit ExponentFusion(Function& f) : f_(f) {}

  void run() {
    for (std::size_t b = 0; b < f_.blocks.size(); ++b)
      for (OpId id : std::vector(f_[BlockId(b)].ops))
        if (const auto found = find(f_[id])) fuse(BlockId(b), id, *found);
    remove_dead_ops(f_);
  }

 private:
  struct Exponent {
    ValueId scores, row, scale;  ///< (scores - row) scale
  };

  [[nodiscard]] std::optional<Exponent> find(const Op& op) const {
    if (op.code != OpCode::exp2) return std::nullopt;
    const Op* product = f_.definition(op.operands[0]);
    if (!product || product->code != OpCode::mul) return std::nullopt;
    for (std::size_t k : {0, 1}) {
      const ValueId scale = product->operands[k];
      const Op* difference = f_.definition(product->operands[1 - k]);
      if (!f_[scale].type.is_scalar() || !difference || difference->code != OpCode::sub) continue;
      const ValueId scores = difference->operands[0], row = difference->operands[1];
      if (f_[scores].type.axes.size() == 2 && f_[scores].type == f_[op.results[0]].type &&
          f_[row].type.axes.size() == 1)
        return Exponent{scores, row, scale};
    }
    return std::nullopt;
  }

  /// The lower bound of scores whose exponents are small: what is subtracted from them is one of
  /// them, or so much more that nothing is left.
  [[nodiscard]] std::optional<double> least_of_small(const Exponent& e) const {
    const double* scale = constant_of(f_, e.scale);
    const Bounds bounds = ValueBounds(f_).of(e.scores);
    if (!scale || !bounds.finite()) return std::nullopt;
    const double most = std::max(std::abs(bounds.low), std::abs(bounds.high));
    return most * std::abs(*scale) < large_exponent ? std::optional(bounds.low) : std::nullopt;
  }

  void fuse(BlockId block, OpId exponential, const Exponent& e) {
    const std::optional<double> least = least_of_small(e);
    ValueId exponent;
    insert_before(f_, block, position_of(f_, block, exponential), f_[exponential].where,
                  [&](Builder& b) {
                    ValueId row = e.row;
                    if (least && !constant_of(f_, row))
                      row = b.elementwise(OpCode::max, {row, b.constant(*least, DType::f32)});
                    const ValueId product = b.mul(row, e.scale);
                    ValueId scores = e.scores, added = b.elementwise(OpCode::neg, {product});
                    if (!least) {
                      const ValueId limit = b.constant(large_exponent, DType::f32);
                      const ValueId large =
                          b.elementwise(OpCode::ge, {b.elementwise(OpCode::abs, {product}), limit});
                      f_[large].name = "large";
                      const ValueId zero = b.constant(0, DType::f32), centred = b.sub(scores, row);
                      scores = b.elementwise(OpCode::where, {large, centred, scores});
                      added = b.elementwise(OpCode::where, {large, zero, added});
                      for (ValueId value : {centred, scores, added})
                        f_.definition(value)->lazy = true;
                    }
                    exponent = b.elementwise(OpCode::fma, {scores, e.scale, added});
                  });
    f_[exponential].operands[0] = exponent;
  }

  Function& f_;
};

}  // namespace

void fuse_exponents(Function& f, const PassContext&) { ExponentFusion(f).run(); }

}  // namespace flashcore
