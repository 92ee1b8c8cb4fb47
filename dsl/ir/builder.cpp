#include "dsl/ir/builder.h"

#include <algorithm>

namespace flashcore::ir {

Builder::Builder(Function& f, BlockId block, std::size_t position)
    : f_(f), block_(block), position_(position) {
  if (position < f[block].ops.size()) where_ = f[f[block].ops[position]].where;
}

std::size_t Builder::position() const { return position_.value_or(f_[block_].ops.size()); }

void Builder::place(OpId op) {
  auto& ops = f_[block_].ops;
  ops.insert(ops.begin() + static_cast<std::ptrdiff_t>(position()), op);
  if (position_) ++*position_;
}

void Builder::go_behind(OpId op) {
  const auto& ops = f_[block_].ops;
  position_ = static_cast<std::size_t>(std::ranges::find(ops, op) - ops.begin()) + 1;
}

void Builder::remove(OpId op) {
  auto& ops = f_[block_].ops;
  const auto found = std::ranges::find(ops, op);
  if (position_ && static_cast<std::size_t>(found - ops.begin()) < *position_) --*position_;
  ops.erase(found);
}

OpId Builder::append(Op op, const std::vector<TileType>& result_types) {
  op.where = where_;
  const OpId id = f_.add_op(std::move(op), result_types);
  place(id);
  return id;
}

ValueId Builder::make(Op op, TileType type) {
  return f_[append(std::move(op), {std::move(type)})].results[0];
}

ValueId Builder::append_inferred(Op op) {
  op.where = where_;
  TileType type = infer_type(f_, op);
  return make(std::move(op), std::move(type));
}

ValueId Builder::constant(double number, DType dtype, std::vector<AxisId> axes) {
  return make({.code = OpCode::constant, .number = number}, {dtype, std::move(axes)});
}

ValueId Builder::integer(std::int64_t number) {
  return constant(static_cast<double>(number), DType::i32);
}

ValueId Builder::parameter(ParameterId parameter) {
  return append_inferred({.code = OpCode::parameter, .parameter = parameter});
}

ValueId Builder::dimension(TensorId tensor, int dimension) {
  return make(
      {.code = OpCode::dimension, .tensor = tensor, .number = static_cast<double>(dimension)},
      {DType::i32, {}});
}

ValueId Builder::extent(AxisId axis) {
  return append_inferred({.code = OpCode::extent, .axis = axis});
}

ValueId Builder::index(AxisId axis) {
  return append_inferred({.code = OpCode::index, .axis = axis});
}

ValueId Builder::tile_begin(AxisId axis) {
  return append_inferred({.code = OpCode::tile_begin, .axis = axis});
}

ValueId Builder::tile_count(AxisId axis) {
  return append_inferred({.code = OpCode::tile_count, .axis = axis});
}

ValueId Builder::elementwise(OpCode code, std::vector<ValueId> operands) {
  return append_inferred({.code = code, .operands = std::move(operands)});
}

ValueId Builder::cast(ValueId value, DType dtype) {
  if (f_[value].type.dtype == dtype) return value;
  Op op{.code = OpCode::cast, .operands = {value}, .where = where_};
  TileType type = cast_type(f_, op, dtype);
  return make(std::move(op), std::move(type));
}

ValueId Builder::gather(TensorId tensor, std::vector<ValueId> indices, std::uint8_t wraps) {
  return append_inferred(
      {.code = OpCode::gather, .operands = std::move(indices), .tensor = tensor, .wraps = wraps});
}

ValueId Builder::reduce(OpCode code, ValueId value, AxisId axis) {
  return append_inferred({.code = code, .operands = {value}, .axis = axis});
}

ValueId Builder::combine_partials(ValueId value, AxisId axis, OpCode reduction) {
  Op op{.code = OpCode::combine_partials, .operands = {value}, .axis = axis};
  op.reduction = reduction;
  return append_inferred(std::move(op));
}

ValueId Builder::transpose(ValueId value) {
  const ValueId view = append_inferred({.code = OpCode::transpose, .operands = {value}});
  f_[view].layout.space = f_[value].layout.space;
  return view;
}

ValueId Builder::dot(ValueId a, ValueId b, ValueId accumulator, OperandRounding rounding) {
  Op op{.code = OpCode::dot, .operands = {a, b}};
  op.rounding = rounding;
  if (accumulator) op.operands.push_back(accumulator);
  return append_inferred(std::move(op));
}

ValueId Builder::load(TensorId tensor, std::vector<Coordinate> coordinates) {
  Op op{.code = OpCode::load, .tensor = tensor};
  op.coordinates = std::move(coordinates);
  return append_inferred(std::move(op));
}

ValueId Builder::searchsorted(TensorId tensor, ValueId number) {
  const ValueId count = dimension(tensor, 0);
  return append_inferred(
      {.code = OpCode::searchsorted, .operands = {number, count}, .tensor = tensor});
}

void Builder::segment(AxisId axis, ValueId begin, ValueId end) {
  append({.code = OpCode::segment, .operands = {begin, end}, .axis = axis}, {});
}

void Builder::store(TensorId tensor, std::vector<Coordinate> coordinates, ValueId value,
                    Accumulation accumulation, TensorId turns) {
  Op op{.code = OpCode::store, .operands = {value}, .where = where_, .tensor = tensor};
  op.coordinates = std::move(coordinates);
  op.accumulation = accumulation;
  op.turns = turns;
  check_store(f_, op);
  append(std::move(op), {});
}

}  // namespace flashcore::ir
