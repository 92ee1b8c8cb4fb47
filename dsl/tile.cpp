#include "dsl/tile.h"

#include <fmt/format.h>

#include "dsl/handles.h"
#include "dsl/program_builder.h"

namespace flashcore {
namespace {

using ir::OpCode;

ProgramBuilder& owner_of(std::initializer_list<const Operand*> operands) {
  ProgramBuilder* owner = nullptr;
  for (const Operand* operand : operands) {
    if (operand->empty)
      throw SpecError({"an operation on an empty tile", "a Tile() names no value",
                       "compute it first, or use builder.constant(...)", operand->where});
    if (!operand->is_tile()) continue;
    if (owner && owner != operand->tile.owner())
      throw SpecError({"an operation on tiles of two programs", "each belongs to its own builder",
                       "build both tiles in one program", operand->where});
    owner = operand->tile.owner();
  }
  if (!owner)
    throw SpecError({"an operation on numbers alone", "there is no program to add it to",
                     "use builder.constant(...)", (*operands.begin())->where});
  return *owner;
}

ir::ValueId value_of(ProgramBuilder& owner, const Operand& operand, DType dtype) {
  if (operand.is_tile()) return operand.tile.id();
  return owner.ops().at(operand.where).constant(operand.number, dtype);
}

Tile unary(OpCode code, const Operand& a) {
  ProgramBuilder& owner = owner_of({&a});
  return {&owner, owner.ops().at(a.where).elementwise(code, {a.tile.id()})};
}

Tile binary(OpCode code, const Operand& a, const Operand& b) {
  ProgramBuilder& owner = owner_of({&a, &b});
  const DType dtype = a.is_tile() ? a.tile.dtype() : b.tile.dtype();
  const ir::ValueId left = value_of(owner, a, dtype), right = value_of(owner, b, dtype);
  return {&owner, owner.ops().at(a.where).elementwise(code, {left, right})};
}

Tile reduction(OpCode code, const Operand& a, Axis axis) {
  ProgramBuilder& owner = owner_of({&a});
  require_own(&owner, axis.owner, "axis", a.where);
  return {&owner, owner.ops().at(a.where).reduce(code, a.tile.id(), axis.id)};
}

}  // namespace

Tile Tile::named(std::string_view name) const {
  require_own(owner_, owner_, "tile", {});
  owner_->function()[id_].name = name;
  return *this;
}

DType Tile::dtype() const {
  require_own(owner_, owner_, "tile", {});
  return owner_->function()[id_].type.dtype;
}

Tile operator-(Operand a) { return unary(OpCode::neg, a); }
Tile operator!(Operand a) { return unary(OpCode::logical_not, a); }
Tile operator+(Operand a, Operand b) { return binary(OpCode::add, a, b); }
Tile operator-(Operand a, Operand b) { return binary(OpCode::sub, a, b); }
Tile operator*(Operand a, Operand b) { return binary(OpCode::mul, a, b); }
Tile operator/(Operand a, Operand b) { return binary(OpCode::div, a, b); }
Tile operator%(Operand a, Operand b) { return binary(OpCode::mod, a, b); }
Tile operator<(Operand a, Operand b) { return binary(OpCode::lt, a, b); }
Tile operator<=(Operand a, Operand b) { return binary(OpCode::le, a, b); }
Tile operator>(Operand a, Operand b) { return binary(OpCode::gt, a, b); }
Tile operator>=(Operand a, Operand b) { return binary(OpCode::ge, a, b); }
Tile operator==(Operand a, Operand b) { return binary(OpCode::eq, a, b); }
Tile operator!=(Operand a, Operand b) { return binary(OpCode::ne, a, b); }
Tile operator&&(Operand a, Operand b) { return binary(OpCode::logical_and, a, b); }
Tile operator||(Operand a, Operand b) { return binary(OpCode::logical_or, a, b); }
Tile operator&(Operand a, Operand b) { return binary(OpCode::logical_and, a, b); }
Tile operator|(Operand a, Operand b) { return binary(OpCode::logical_or, a, b); }

Tile minimum(Operand a, Operand b) { return binary(OpCode::min, a, b); }
Tile maximum(Operand a, Operand b) { return binary(OpCode::max, a, b); }
Tile abs(Operand a) { return unary(OpCode::abs, a); }
Tile exp(Operand a) { return unary(OpCode::exp, a); }
Tile exp2(Operand a) { return unary(OpCode::exp2, a); }
Tile log(Operand a) { return unary(OpCode::log, a); }
Tile log2(Operand a) { return unary(OpCode::log2, a); }
Tile sqrt(Operand a) { return unary(OpCode::sqrt, a); }
Tile tanh(Operand a) { return unary(OpCode::tanh, a); }
Tile sin(Operand a) { return unary(OpCode::sin, a); }
Tile cos(Operand a) { return unary(OpCode::cos, a); }
Tile tan(Operand a) { return unary(OpCode::tan, a); }
Tile atan(Operand a) { return unary(OpCode::atan, a); }
Tile erf(Operand a) { return unary(OpCode::erf, a); }
Tile expm1(Operand a) { return unary(OpCode::expm1, a); }
Tile log1p(Operand a) { return unary(OpCode::log1p, a); }
Tile round(Operand a) { return unary(OpCode::round, a); }
Tile floor(Operand a) { return unary(OpCode::floor, a); }
Tile reciprocal(Operand a) { return unary(OpCode::reciprocal, a); }

Tile where(Operand condition, Operand yes, Operand no) {
  ProgramBuilder& owner = owner_of({&condition, &yes, &no});
  const DType dtype = yes.is_tile()  ? yes.tile.dtype()
                      : no.is_tile() ? no.tile.dtype()
                                     : DType::f32;
  const ir::ValueId c = value_of(owner, condition, DType::i1);
  const ir::ValueId y = value_of(owner, yes, dtype), n = value_of(owner, no, dtype);
  return {&owner, owner.ops().at(condition.where).elementwise(OpCode::where, {c, y, n})};
}

Tile cast(Operand a, DType dtype) {
  ProgramBuilder& owner = owner_of({&a});
  return {&owner, owner.ops().at(a.where).cast(a.tile.id(), dtype)};
}

Tile reduce_max(Operand a, Axis axis) { return reduction(OpCode::reduce_max, a, axis); }
Tile reduce_min(Operand a, Axis axis) { return reduction(OpCode::reduce_min, a, axis); }
Tile reduce_sum(Operand a, Axis axis) { return reduction(OpCode::reduce_sum, a, axis); }

Tile transpose(Operand a) {
  ProgramBuilder& owner = owner_of({&a});
  return {&owner, owner.ops().at(a.where).transpose(a.tile.id())};
}

Tile dot(Operand a, Operand b, OperandRounding rounding) {
  ProgramBuilder& owner = owner_of({&a, &b});
  if (!a.is_tile() || !b.is_tile())
    throw SpecError({"dot with a number", "both operands are tiles with two axes",
                     "multiply by it: a * 2", a.where});
  return {&owner, owner.ops().at(a.where).dot(a.tile.id(), b.tile.id(), {}, rounding)};
}

Tile index(Axis axis, const std::source_location& at) {
  require_own(axis.owner, axis.owner, "axis", at);
  return {axis.owner, axis.owner->ops().at(at).index(axis.id)};
}

Tile length(Axis axis, const std::source_location& at) {
  require_own(axis.owner, axis.owner, "axis", at);
  return {axis.owner, axis.owner->ops().at(at).extent(axis.id)};
}

Access Tensor::access(const std::vector<Index>& indices) const {
  const Location where = indices.empty() ? Location{} : indices[0].where;
  require_own(owner_, owner_, "tensor", where);
  for (const Index& index : indices) {
    const bool axis = index.axis.owner != nullptr;
    require_own(owner_, axis ? index.axis.owner : index.position.owner(), axis ? "axis" : "tile",
                where);
  }
  ir::Function& f = owner_->function();
  const ir::Tensor& tensor = f[id_];
  if (indices.size() != tensor.dims.size())
    throw SpecError({fmt::format("{} with {} indices", tensor.name, indices.size()),
                     fmt::format("it has {} dimensions", tensor.dims.size()),
                     "give one axis or scalar a dimension", where});
  Access access{owner_, id_, {}, where};
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const Index& index = indices[i];
    if (!index.axis.owner) {
      access.coordinates.push_back({{}, index.position.id()});
      continue;
    }
    const ir::Axis& axis = f[index.axis.id];
    if (!(axis.extent == tensor.dims[i]))
      throw SpecError(
          {fmt::format("{} indexed by axis {} in dimension {}", tensor.name, axis.name, i),
           fmt::format("the axis has length {}, the dimension {}", axis.extent.text(),
                       tensor.dims[i].text()),
           "declare both with the same extent, or index with a scalar", index.where});
    if (axis.kind == ir::AxisKind::parallel)
      access.coordinates.push_back({{}, owner_->ops().at(index.where).index(index.axis.id)});
    else
      access.coordinates.push_back({index.axis.id, {}});
  }
  return access;
}

Tile length(const Tensor& tensor, int dimension, const std::source_location& at) {
  require_own(tensor.owner(), tensor.owner(), "tensor", at);
  const ir::Tensor& declared = tensor.owner()->function()[tensor.id()];
  const auto rank = static_cast<int>(declared.dims.size());
  if (dimension < 0 || dimension >= rank)
    throw SpecError({fmt::format("the length of dimension {} of {}", dimension, declared.name),
                     fmt::format("it has {} dimensions", rank), "dimensions count from 0", at});
  return {tensor.owner(), tensor.owner()->ops().at(at).dimension(tensor.id(), dimension)};
}

Tile gather(const Tensor& tensor, const std::vector<Operand>& indices) {
  Location where;
  if (!indices.empty()) where = indices[0].where;
  require_own(tensor.owner(), tensor.owner(), "tensor", where);
  ProgramBuilder& owner = *tensor.owner();
  std::vector<ir::ValueId> ids;
  for (const Operand& index : indices) {
    if (index.empty) owner_of({&index});  // refuses it
    if (index.is_tile()) require_own(&owner, index.tile.owner(), "tile", index.where);
    ids.push_back(value_of(owner, index, DType::i32));
  }
  return {&owner, owner.ops().at(where).gather(tensor.id(), std::move(ids))};
}

Tile searchsorted(const Tensor& tensor, Operand number) {
  require_own(tensor.owner(), tensor.owner(), "tensor", number.where);
  ProgramBuilder& owner = *tensor.owner();
  if (number.empty) owner_of({&number});  // refuses it
  if (number.is_tile()) require_own(&owner, number.tile.owner(), "tile", number.where);
  const ir::ValueId value = value_of(owner, number, DType::i32);
  return {&owner, owner.ops().at(number.where).searchsorted(tensor.id(), value)};
}

Tile load(const Access& access) {
  return {access.owner,
          access.owner->ops().at(access.where).load(access.tensor, access.coordinates)};
}

namespace {

void store_as(const Access& access, Operand tile, ir::Accumulation accumulation,
              ir::TensorId turns) {
  ir::Function& f = access.owner->function();
  const ir::Tensor& tensor = f[access.tensor];
  if (!tile.is_tile())
    throw SpecError({fmt::format("store of a number to {}", tensor.name), "a store takes a tile",
                     "fill({axes}, value) makes one", tile.where});
  require_own(access.owner, tile.tile.owner(), "tile", tile.where);
  const ir::Op accessed{.code = ir::OpCode::store,
                        .where = access.where,
                        .tensor = access.tensor,
                        .coordinates = access.coordinates};
  const std::vector<ir::AxisId> axes = ir::accessed_axes(f, accessed);
  const ir::TileType expected{tensor.dtype, axes}, &given = f[tile.tile.id()].type;
  if (!(given == expected))
    throw SpecError(
        {fmt::format("store of {} to {}", ir::describe(f, given), tensor.name),
         fmt::format("the indices name a {}", ir::describe(f, expected)),
         given.axes == axes ? "cast it first" : "give the tile the same axes in the same order",
         tile.where});
  access.owner->ops()
      .at(access.where)
      .store(access.tensor, access.coordinates, tile.tile.id(), accumulation, turns);
}

}  // namespace

void store(const Access& access, Operand tile) {
  store_as(access, tile, ir::Accumulation::none, {});
}

void accumulate(const Access& access, Operand tile) {
  store_as(access, tile, ir::Accumulation::any_order, {});
}

void accumulate(const Access& access, Operand tile, const Tensor& turns) {
  require_own(access.owner, turns.owner(), "tensor", access.where);
  store_as(access, tile, ir::Accumulation::in_order, turns.id());
}

}  // namespace flashcore
