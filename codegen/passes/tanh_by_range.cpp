#include "codegen/passes/tanh_by_range.h"

#include <utility>

#include "codegen/passes/rewrite.h"

namespace flashcore {

using namespace ir;

TanhByRange::TanhByRange(Builder& b, const TanhChain& chain, int fence)
    : f_(b.function()), chain_(chain), fence_(fence), like_(f_[chain.value]) {
  const auto number = [&](double x) { return b.constant(x, DType::f32); };
  const auto mul = [&](ValueId x, ValueId y) { return as_uniform(f_, b.mul(x, y)); };
  l_ = chain_.times ? chain_.times : number(1);
  const ValueId factor = chain_.factor ? chain_.factor : number(1);
  const ValueId k =
      as_uniform(f_, make(b, {.code = OpCode::in_place, .operands = {factor}}, {DType::f32, {}}));
  square_ = mul(k, k);
  const ValueId cube = mul(square_, k);
  const auto scaled = [&](ValueId x) { return chain_.times ? mul(x, l_) : x; };
  first_ = scaled(mul(number(0.99999887), k));
  third_ = scaled(mul(number(-0.33310075), cube));
  fifth_ = scaled(mul(number(0.12634595), mul(cube, square_)));
  limit_ =
      mul(number(squares_of_small), as_uniform(f_, b.elementwise(OpCode::reciprocal, {square_})));
  exponent_ = mul(number(2.885390082), k);
  const std::pair<ValueId, const char*> names[] = {
      {square_, "square"}, {first_, "first"}, {third_, "third"},       {fifth_, "fifth"},
      {limit_, "limit"},   {cube, "cube"},    {exponent_, "exponent"}, {k, "factor"}};
  for (const auto& [value, name] : names) f_[value].name = name;
  twice_ = chain_.times ? mul(number(-2), l_) : number(-2);
}

/// A nest with the chain on `x`. What a mask may hide counts as a product takes it.
std::vector<ValueId> TanhByRange::build_nest(Builder& outer, ValueId x, Arguments arguments,
                                             bool hides) const {
  Op nest{.code = OpCode::nest, .where = f_[f_[chain_.value].definition].where};
  // Results of the special function unit are waited for together, but not those of all elements:
  // that would want more registers than there are.
  if (arguments == Arguments::any) nest.fence = fence_;
  nest.body = f_.add_block();
  Builder b(f_, nest.body);
  b.at(nest.where);
  ValueId value = build_tanh(b, x, arguments);
  if (chain_.raised) value = element(b, OpCode::exp2, {value});
  std::vector<ValueId> made{value};
  if (chain_.sum) build_sums(b, made, hides);
  b.append({.code = OpCode::yield, .operands = made}, {});
  f_[value].name = like_.name;
  return append_like(f_, outer.block(), std::move(nest), made);
}

void TanhByRange::build_sums(Builder& b, std::vector<ValueId>& made, bool hides) const {
  const ValueId value = made[0];
  const auto& rounding = chain_.rounding;
  const auto rounded = [&] {
    const ValueId narrow = like_element(b.cast(value, rounding->to));
    return like_element(b.cast(narrow, DType::f32));
  };
  made.push_back(reduce(b, rounding && !rounding->apart && hides ? rounded() : value));
  if (!rounding || !rounding->apart) return;
  const ValueId added = hides ? element(b, OpCode::sub, {rounded(), value})
                              : like_element(b.constant(0, DType::f32, like_.type.axes));
  made.push_back(reduce(b, added));
}

ValueId TanhByRange::reduce(Builder& b, ValueId value) const {
  Op sum = f_[chain_.sum];
  sum.operands = {value};
  return append_like(f_, b.block(), std::move(sum), f_[chain_.sum].results)[0];
}

ValueId TanhByRange::like_element(ValueId value) const {
  f_[value].layout = like_.layout;
  return value;
}
ValueId TanhByRange::element(Builder& b, OpCode code, std::vector<ValueId> operands) const {
  return like_element(b.elementwise(code, std::move(operands)));
}

ValueId TanhByRange::build_tanh(Builder& b, ValueId x, Arguments arguments) const {
  const auto number = [&](double value) { return b.constant(value, DType::f32); };
  const auto fma = [&](ValueId p, ValueId q, ValueId r) {
    return element(b, OpCode::fma, {p, q, r});
  };
  const auto mul = [&](ValueId p, ValueId q) { return element(b, OpCode::mul, {p, q}); };
  if (arguments == Arguments::any) return build_any(b, x);
  const auto finish = [&](ValueId p, ValueId q) {
    return chain_.plus ? fma(p, q, chain_.plus) : mul(p, q);
  };
  if (arguments == Arguments::small) {
    const ValueId square = mul(x, x);
    return finish(x, fma(fma(fifth_, square, third_), square, first_));
  }
  const ValueId square = mul(mul(x, x), square_);
  const ValueId high =
      fma(fma(number(0.0121001490), square, number(-0.0491801933)), square, number(0.132305769));
  return finish(mul(x, first_),
                fma(fma(high, square, number(-0.333254096)), square, number(1.00000012)));
}

/// By the special function unit. Minus infinity stays that: the least positive number times any
/// other x is too small to show.
ValueId TanhByRange::build_any(Builder& b, ValueId x) const {
  const auto number = [&](double value) { return b.constant(value, DType::f32); };
  const ValueId power = element(b, OpCode::exp2, {element(b, OpCode::mul, {x, exponent_})});
  const ValueId inverse =
      element(b, OpCode::reciprocal, {element(b, OpCode::add, {power, number(1)})});
  ValueId high = l_;
  if (chain_.plus) {
    high = b.add(chain_.plus, l_);
    f_[high].layout = f_[chain_.plus].layout;
  }
  if (chain_.masked)
    high = element(b, OpCode::fma,
                   {element(b, OpCode::min, {x, number(0)}), number(1.401298464e-45), high});
  return element(b, OpCode::fma, {twice_, inverse, high});
}

}  // namespace flashcore
