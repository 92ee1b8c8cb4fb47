#include "codegen/passes/tanh_by_range.h"

#include <utility>

#include "codegen/passes/rewrite.h"

namespace flashcore {

using namespace ir;

namespace {

ValueId number(Builder& b, double value) { return b.constant(value, DType::f32); }
ValueId fma(Builder& b, ValueId p, ValueId q, ValueId r) {
  return b.elementwise(OpCode::fma, {p, q, r});
}

}  // namespace

TanhByRange::TanhByRange(Builder& b, const TanhChain& chain, int fence)
    : f_(b.function()), chain_(chain), fence_(fence), like_(f_[chain.value]) {
  l_ = chain_.times ? chain_.times : number(b, 1);
  const ValueId factor = chain_.factor ? chain_.factor : number(b, 1);
  const ValueId k = b.make({.code = OpCode::in_place, .operands = {factor}}, {DType::f32, {}});
  square_ = b.mul(k, k);
  const ValueId cube = b.mul(square_, k);
  const auto scaled = [&](ValueId x) { return chain_.times ? b.mul(x, l_) : x; };
  first_ = scaled(b.mul(number(b, 0.99999887), k));
  third_ = scaled(b.mul(number(b, -0.33310075), cube));
  fifth_ = scaled(b.mul(number(b, 0.12634595), b.mul(cube, square_)));
  limit_ = b.mul(number(b, squares_of_small), b.elementwise(OpCode::reciprocal, {square_}));
  exponent_ = b.mul(number(b, 2.885390082), k);
  const std::pair<ValueId, const char*> names[] = {
      {square_, "square"}, {first_, "first"}, {third_, "third"},       {fifth_, "fifth"},
      {limit_, "limit"},   {cube, "cube"},    {exponent_, "exponent"}, {k, "factor"}};
  for (const auto& [value, name] : names) f_[value].name = name;
  twice_ = chain_.times ? b.mul(number(b, -2), l_) : number(b, -2);
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
  if (chain_.raised) value = b.elementwise(OpCode::exp2, {value});
  f_[value].name = like_.name;
  std::vector<ValueId> made{value};
  if (chain_.sum) build_sums(b, made, hides);
  for (OpId id : f_[nest.body].ops)
    for (ValueId element : f_[id].results)
      if (f_[element].type.axes == like_.type.axes) f_[element].layout = like_.layout;
  b.append({.code = OpCode::yield, .operands = made}, {});
  return make_like(outer, std::move(nest), made);
}

void TanhByRange::build_sums(Builder& b, std::vector<ValueId>& made, bool hides) const {
  const ValueId value = made[0];
  const bool rounds = chain_.rounding && hides, apart = chain_.rounding && chain_.rounding->apart;
  const auto reduce = [&](ValueId elements) {
    Op sum = f_[chain_.sum];
    sum.operands = {elements};
    made.push_back(make_like(b, std::move(sum), f_[chain_.sum].results)[0]);
  };
  const auto rounded = [&] { return b.cast(b.cast(value, chain_.rounding->to), DType::f32); };
  reduce(rounds && !apart ? rounded() : value);
  if (apart) reduce(rounds ? b.sub(rounded(), value) : b.constant(0, DType::f32, like_.type.axes));
}

ValueId TanhByRange::build_tanh(Builder& b, ValueId x, Arguments arguments) const {
  if (arguments == Arguments::any) return build_any(b, x);
  const auto finish = [&](ValueId p, ValueId q) {
    return chain_.plus ? fma(b, p, q, chain_.plus) : b.mul(p, q);
  };
  if (arguments == Arguments::small) {
    const ValueId square = b.mul(x, x);
    return finish(x, fma(b, fma(b, fifth_, square, third_), square, first_));
  }
  const ValueId square = b.mul(b.mul(x, x), square_);
  const ValueId high = fma(b, fma(b, number(b, 0.0121001490), square, number(b, -0.0491801933)),
                           square, number(b, 0.132305769));
  return finish(b.mul(x, first_), fma(b, fma(b, high, square, number(b, -0.333254096)), square,
                                      number(b, 1.00000012)));
}

/// By the special function unit. Minus infinity stays that: the least positive number times any
/// other x is too small to show.
ValueId TanhByRange::build_any(Builder& b, ValueId x) const {
  const ValueId power = b.elementwise(OpCode::exp2, {b.mul(x, exponent_)});
  const ValueId inverse = b.elementwise(OpCode::reciprocal, {b.add(power, number(b, 1))});
  ValueId high = l_;
  if (chain_.plus) {
    high = b.add(chain_.plus, l_);
    f_[high].layout = f_[chain_.plus].layout;
  }
  if (chain_.masked)
    high = b.elementwise(OpCode::fma, {b.min(x, number(b, 0)), number(b, 1.401298464e-45), high});
  return fma(b, twice_, inverse, high);
}

}  // namespace flashcore
