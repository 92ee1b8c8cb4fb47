#include "dsl/ir/builder.h"

#include <fmt/format.h>

#include <algorithm>

namespace flashcore::ir {

std::string describe(const Function& f, const TileType& type) {
  std::string text(name_of(type.dtype));
  for (std::size_t i = 0; i < type.axes.size(); ++i)
    text += (i ? ", " : "[") + f[type.axes[i]].name;
  return type.axes.empty() ? text : text + "]";
}

std::string Builder::describe(ValueId value) const { return ir::describe(f_, f_[value].type); }

void Builder::refuse(std::string what, std::string why, std::string fix) const {
  throw SpecError({std::move(what), std::move(why), std::move(fix), where_});
}

OpId Builder::append(Op op, const std::vector<TileType>& result_types) {
  op.where = where_;
  const OpId id = f_.add_op(std::move(op), result_types);
  f_[block_].ops.push_back(id);
  return id;
}

ValueId Builder::append_one(Op op, TileType type) {
  return f_[append(std::move(op), {std::move(type)})].results[0];
}

ValueId Builder::constant(double number, DType dtype, std::vector<AxisId> axes) {
  return append_one({.code = OpCode::constant, .number = number}, {dtype, std::move(axes)});
}

ValueId Builder::parameter(ParameterId parameter) {
  return append_one({.code = OpCode::parameter, .parameter = parameter},
                    {f_[parameter].dtype, {}});
}

ValueId Builder::extent(AxisId axis) {
  return append_one({.code = OpCode::extent, .axis = axis}, {DType::i32, {}});
}

ValueId Builder::index(AxisId axis) {
  TileType type{DType::i32, {}};
  if (f_[axis].kind != AxisKind::parallel) type.axes = {axis};
  return append_one({.code = OpCode::index, .axis = axis}, type);
}

ValueId Builder::tile_begin(AxisId axis) {
  return append_one({.code = OpCode::tile_begin, .axis = axis}, {DType::i32, {}});
}

ValueId Builder::tile_count(AxisId axis) {
  return append_one({.code = OpCode::tile_count, .axis = axis}, {DType::i32, {}});
}

namespace {

bool is_comparison(OpCode code) { return code >= OpCode::lt && code <= OpCode::ne; }
bool is_logic(OpCode code) {
  return code == OpCode::logical_and || code == OpCode::logical_or || code == OpCode::logical_not;
}
bool is_float_only(OpCode code) {
  switch (code) {
    case OpCode::exp:
    case OpCode::exp2:
    case OpCode::log:
    case OpCode::log2:
    case OpCode::sqrt:
    case OpCode::tanh:
    case OpCode::reciprocal: return true;
    default: return false;
  }
}

}  // namespace

ValueId Builder::elementwise(OpCode code, std::vector<ValueId> operands) {
  // A broadcast result keeps the axis order of its widest operand.
  std::vector<AxisId> axes;
  for (ValueId operand : operands)
    if (f_[operand].type.axes.size() > axes.size()) axes = f_[operand].type.axes;
  for (ValueId operand : operands)
    for (AxisId axis : f_[operand].type.axes)
      if (std::find(axes.begin(), axes.end(), axis) == axes.end()) axes.push_back(axis);
  if (axes.size() > 2)
    refuse(fmt::format("{} of tiles over {} different axes", name_of(code), axes.size()),
           "a tile has at most two axes", "reduce one of the operands first");
  for (ValueId operand : operands)
    if (f_[operand].type.axes.size() == 2 && f_[operand].type.axes != axes)
      refuse(fmt::format("{} of {} and {}", name_of(code), describe(operands[0]), describe(operand)),
             "the operands have the same axes in a different order", "transpose one of them");

  const bool is_where = code == OpCode::where;
  const ValueId lead = operands[is_where ? 1 : 0];
  const DType dtype = f_[lead].type.dtype;
  for (std::size_t i = is_where ? 1 : 0; i < operands.size(); ++i)
    if (f_[operands[i]].type.dtype != dtype)
      refuse(fmt::format("{} of {} and {}", name_of(code), describe(lead), describe(operands[i])),
             "the dtypes differ and FlashCore converts nothing by itself", "cast one of them");
  if (is_where && f_[operands[0]].type.dtype != DType::i1)
    refuse(fmt::format("where with a condition of type {}", describe(operands[0])),
           "a condition has dtype i1", "compare something: where(x > 0.f, a, b)");
  if (is_logic(code) && dtype != DType::i1)
    refuse(fmt::format("{} of {}", name_of(code), describe(lead)), "it takes conditions (i1)",
           "compare something first");
  if (is_float_only(code) && dtype != DType::f32)
    refuse(fmt::format("{} of {}", name_of(code), describe(lead)),
           "it is computed in f32 only", "cast(x, f32) first");
  if (!is_logic(code) && !is_where && dtype == DType::i1)
    refuse(fmt::format("{} of {}", name_of(code), describe(lead)), "conditions have no arithmetic",
           "where(condition, 1.f, 0.f) makes numbers of them");
  if (is_half(dtype) && !is_where)
    refuse(fmt::format("{} of {}", name_of(code), describe(lead)),
           "arithmetic is done in f32; 16-bit types are for memory and products",
           "cast(x, f32) first");
  if (code == OpCode::mod && dtype != DType::i32)
    refuse(fmt::format("mod of {}", describe(lead)), "it takes integers", "cast to i32");

  const DType result = is_comparison(code) ? DType::i1 : dtype;
  return append_one({.code = code, .operands = std::move(operands)}, {result, std::move(axes)});
}

ValueId Builder::cast(ValueId value, DType dtype) {
  if (f_[value].type.dtype == dtype) return value;
  if (dtype == DType::i1 || f_[value].type.dtype == DType::i1)
    refuse(fmt::format("cast of {} to {}", describe(value), name_of(dtype)),
           "conditions are not numbers", "compare, or use where");
  return append_one({.code = OpCode::cast, .operands = {value}}, {dtype, f_[value].type.axes});
}

ValueId Builder::reduce(OpCode code, ValueId value, AxisId axis) {
  const TileType& type = f_[value].type;
  if (!type.has(axis))
    refuse(fmt::format("{} of {} along {}", name_of(code), describe(value), f_[axis].name),
           "the tile has no such axis", "name one of its axes");
  if (type.dtype != DType::f32)
    refuse(fmt::format("{} of {}", name_of(code), describe(value)), "reductions are done in f32",
           "cast(x, f32) first");
  std::vector<AxisId> axes = type.axes;
  std::erase(axes, axis);
  return append_one({.code = code, .operands = {value}, .axis = axis}, {type.dtype, axes});
}

ValueId Builder::combine_lanes(ValueId value, AxisId axis, OpCode reduction) {
  Op op{.code = OpCode::combine_lanes, .operands = {value}, .axis = axis};
  op.reduction = reduction;
  return append_one(std::move(op), f_[value].type);
}

ValueId Builder::transpose(ValueId value) {
  TileType type = f_[value].type;
  if (type.axes.size() != 2)
    refuse(fmt::format("transpose of {}", describe(value)), "it takes a tile with two axes", "");
  std::swap(type.axes[0], type.axes[1]);
  return append_one({.code = OpCode::transpose, .operands = {value}}, type);
}

ValueId Builder::dot(ValueId a, ValueId b, ValueId accumulator) {
  const TileType &ta = f_[a].type, &tb = f_[b].type;
  const std::string what = fmt::format("dot of {} and {}", describe(a), describe(b));
  if (ta.axes.size() != 2 || tb.axes.size() != 2)
    refuse(what, "both operands need two axes", "");
  if (ta.axes[1] != tb.axes[0])
    refuse(what,
           fmt::format("the inner axes differ: {} and {}", f_[ta.axes[1]].name, f_[tb.axes[0]].name),
           "transpose an operand, or load both over the same axis");
  if (ta.axes[0] == tb.axes[1])
    refuse(what, "the outer axes are the same", "use two axes, also where their lengths agree");
  if (!is_half(ta.dtype) || ta.dtype != tb.dtype)
    refuse(what, "tensor cores take two operands of one 16-bit type", "cast both to f16 or bf16");
  const TileType type{DType::f32, {ta.axes[0], tb.axes[1]}};
  Op op{.code = OpCode::dot, .operands = {a, b}};
  if (accumulator) {
    if (f_[accumulator].type != type)
      refuse(fmt::format("{} added to {}", what, describe(accumulator)),
             fmt::format("the product is {}", ir::describe(f_, type)), "");
    op.operands.push_back(accumulator);
  }
  return append_one(std::move(op), type);
}

ValueId Builder::load(TensorId tensor, std::vector<Coordinate> coordinates) {
  TileType type{f_[tensor].dtype, {}};
  for (const Coordinate& c : coordinates)
    if (c.axis) type.axes.push_back(c.axis);
  Op op{.code = OpCode::load, .tensor = tensor};
  op.coordinates = std::move(coordinates);
  return append_one(std::move(op), type);
}

void Builder::store(TensorId tensor, std::vector<Coordinate> coordinates, ValueId value) {
  Op op{.code = OpCode::store, .operands = {value}, .tensor = tensor};
  op.coordinates = std::move(coordinates);
  append(std::move(op), {});
}

}  // namespace flashcore::ir
