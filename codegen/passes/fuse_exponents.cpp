// The exponents of a softmax, (x - d) k with one d for each row, become one multiply-add an
// element, and the exponents of the factors that rescale earlier tiles, (c - d) k with another
// number c of the row, become a difference of products:
//
//   e = mul (sub x, d), k                  s = limit_scale k, d        t = mul_rn d, s
//   z = mul (sub c, d), k    becomes       e = fma x, s, -t
//                                          z = sub (mul_rn c, s), t
//
// All elements of a row and their factors subtract the same t, so the rounding error of t cancels
// in the end: until t is so large that half its last bit, by which all weights of the row are off
// as a power of two, leaves the range of f16. So from 2^27 on the scale is a power of two, for
// which t is exact. The exponents of neighbouring floats then differ by at least 2^4, with either
// scale, so the weight of a score is one if it equals the maximum and zero otherwise. A row that
// has seen no key yet, whose maximum is the smallest number, is large as well, and a hidden score
// stays minus infinity. The scale is k itself where bounds say that scores are small, as softcapped
// ones are. A score that is a product is rounded like its maximum: it is not fused into the
// multiply-add.
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "codegen/analysis/value_bounds.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

/// Where limit_scale begins to limit.
constexpr double large_exponent = 1 << 27;

class ExponentFusion {
 public:
  explicit ExponentFusion(Function& f) : f_(f) {}

  void run() {
    // The exponents of elements say which scales are those of a softmax, and what is known of rows.
    for_each_op(f_, f_.body, [&](const Op& op, BlockId) {
      const std::optional<Exponent> e = find(op);
      if (!e || !is_by_element(*e)) return;
      scales_.insert(e->scale);
      if (const auto least = least_of_small(*e)) least_.emplace(Key(e->row, e->scale), *least);
    });
    rewrite_all_blocks(f_, [&](Builder& b, OpId id) {
      if (const auto e = find(f_[id]); e && scales_.contains(e->scale)) fuse(b, id, *e);
    });
    remove_dead_ops(f_);
  }

 private:
  struct Exponent {
    ValueId value, row, scale;          ///< (value - row) scale
    std::vector<ValueId> factors = {};  ///< of the value, if a multiply-add has made the difference
  };
  /// What the exponents of a row refer to.
  struct Reference {
    ValueId scale, product;
  };
  using Key = std::pair<ValueId, ValueId>;  ///< row and scale

  [[nodiscard]] std::optional<Exponent> find(const Op& op) const {
    if (op.code != OpCode::exp2) return std::nullopt;
    const Op* product = definition_as(f_, op.operands[0], OpCode::mul);
    if (!product) return std::nullopt;
    for (std::size_t k : {0, 1}) {
      const ValueId scale = product->operands[k];
      const Op* difference = f_.definition(product->operands[1 - k]);
      if (!f_[scale].type.is_scalar() || !is_positive(f_, scale) || !difference) continue;
      if (difference->code == OpCode::sub) {
        const ValueId value = difference->operands[0], row = difference->operands[1];
        if (f_[value].type == f_[op.results[0]].type && f_[row].type.axes.size() == 1)
          return Exponent{value, row, scale};
      } else if (difference->code == OpCode::fma && !is_small(*difference, scale)) {
        const ValueId value = difference->results[0];
        const Op* minus = definition_as(f_, difference->operands[2], OpCode::neg);
        if (f_[value].type.axes.size() > 1 && minus && f_[minus->operands[0]].type.axes.size() == 1)
          return Exponent{
              value, minus->operands[0], scale, {difference->operands[0], difference->operands[1]}};
      }
    }
    return std::nullopt;
  }

  [[nodiscard]] bool is_by_element(const Exponent& e) const {
    return f_[e.value].type.axes.size() > f_[e.row].type.axes.size();
  }

  /// Whether the product of a multiply-add is so small as an exponent that it need not be rounded.
  [[nodiscard]] bool is_small(const Op& product, ValueId scale) const {
    double most = 1;
    for (ValueId factor : {product.operands[0], product.operands[1], scale})
      most *= ValueBounds(f_).of(factor).magnitude();
    return most < large_exponent;
  }

  /// The lower bound of scores whose exponents are small: what is subtracted from them is one of
  /// them, or so much more that nothing is left.
  [[nodiscard]] std::optional<double> least_of_small(const Exponent& e) const {
    const double* scale = constant_of(f_, e.scale);
    const Bounds bounds = ValueBounds(f_).of(e.value);
    if (!scale || !bounds.finite() || !e.factors.empty()) return std::nullopt;
    const bool small = bounds.magnitude() * std::abs(*scale) < large_exponent;
    return small ? std::optional(bounds.low) : std::nullopt;
  }

  Reference make_reference(Builder& b, const Exponent& e) const {
    const auto least = least_.find({e.row, e.scale});
    if (least == least_.end()) {
      const ValueId scale = b.elementwise(OpCode::limit_scale, {e.scale, e.row});
      return {scale, b.elementwise(OpCode::mul_rn, {e.row, scale})};
    }
    ValueId row = e.row;
    if (!constant_of(f_, row)) row = b.max(row, b.constant(least->second, DType::f32));
    return {e.scale, b.elementwise(OpCode::mul_rn, {row, e.scale})};
  }

  void fuse(Builder& b, OpId exponential, const Exponent& e) {
    auto [reference, fresh] = references_.try_emplace({b.block(), {e.row, e.scale}});
    if (fresh) reference->second = make_reference(b, e);
    const auto [scale, product] = reference->second;
    const ValueId value = e.factors.empty() ? e.value : b.elementwise(OpCode::mul_rn, e.factors);
    f_[exponential].operands[0] =
        is_by_element(e) ? b.elementwise(OpCode::fma, {value, scale, b.neg(product)})
                         : b.sub(b.elementwise(OpCode::mul_rn, {value, scale}), product);
  }

  Function& f_;
  std::set<ValueId> scales_;
  std::map<Key, double> least_;  ///< of rows whose exponents are small
  std::map<std::pair<BlockId, Key>, Reference> references_;
};

}  // namespace

void fuse_exponents(Function& f, const PassContext&) { ExponentFusion(f).run(); }

}  // namespace flashcore
