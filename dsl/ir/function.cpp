#include "dsl/ir/function.h"

namespace flashcore::ir {

std::string_view name_of(OpCode code) {
  // The word itself is one of C++.
  if (code == OpCode::if_) return "if";
  switch (code) {
#define FC_OP(code, kind, meaning) \
  case OpCode::code:               \
    return #code;
#include "dsl/ir/ops.def"
#undef FC_OP
  }
  return "?";
}

OpKind kind_of(OpCode code) {
  switch (code) {
#define FC_OP(code, kind, meaning) \
  case OpCode::code:               \
    return OpKind::kind;
#include "dsl/ir/ops.def"
#undef FC_OP
  }
  return OpKind::tile;
}

std::string_view name_of(TileScheduler scheduler) {
  switch (scheduler) {
    case TileScheduler::consecutive:
      return "consecutive";
    case TileScheduler::serpentine:
      return "serpentine";
    case TileScheduler::dynamic:
      return "dynamic";
  }
  return "?";
}

std::string_view name_of(Transport transport) {
  switch (transport) {
    case Transport::none:
      return "none";
    case Transport::vector:
      return "vector";
    case Transport::cp_async:
      return "cp_async";
    case Transport::tma:
      return "tma";
    case Transport::store:
      return "store";
    case Transport::warps:
      return "warps";
  }
  return "?";
}

std::string_view name_of(AxisKind kind) {
  switch (kind) {
    case AxisKind::parallel:
      return "parallel";
    case AxisKind::parallel_tiles:
      return "parallel_tiles";
    case AxisKind::tiles:
      return "tiles";
    case AxisKind::whole:
      return "whole";
  }
  return "?";
}

AxisId Function::add_axis(Axis axis) {
  axes.push_back(std::move(axis));
  return AxisId(axes.size() - 1);
}

TensorId Function::add_tensor(Tensor tensor) {
  tensors.push_back(std::move(tensor));
  return TensorId(tensors.size() - 1);
}

ParameterId Function::add_parameter(Parameter parameter) {
  parameters.push_back(std::move(parameter));
  return ParameterId(parameters.size() - 1);
}

BufferId Function::add_buffer(Buffer buffer) {
  buffers.push_back(std::move(buffer));
  return BufferId(buffers.size() - 1);
}

BlockId Function::add_block() {
  blocks.emplace_back();
  return BlockId(blocks.size() - 1);
}

ValueId Function::add_value(TileType type, std::string value_name) {
  values.push_back({std::move(type), std::move(value_name), {}, {}});
  return ValueId(values.size() - 1);
}

ValueId Function::add_argument(BlockId block, TileType type, std::string value_name) {
  const ValueId value = add_value(std::move(type), std::move(value_name));
  (*this)[block].arguments.push_back(value);
  return value;
}

OpId Function::add_op(Op op, const std::vector<TileType>& result_types) {
  const OpId id(ops.size());
  for (const TileType& type : result_types) {
    const ValueId result = add_value(type);
    (*this)[result].definition = id;
    op.results.push_back(result);
  }
  ops.push_back(std::move(op));
  return id;
}

const Op* Function::definition(ValueId value) const {
  const OpId id = (*this)[value].definition;
  return id ? &(*this)[id] : nullptr;
}

Op* Function::definition(ValueId value) {
  const OpId id = (*this)[value].definition;
  return id ? &(*this)[id] : nullptr;
}

bool Function::adds_to(TensorId tensor) const {
  bool adds = false;
  for_each_op(*this, body, [&](const Op& op, BlockId) {
    adds = adds || op.turns == tensor ||
           (op.tensor == tensor && op.accumulation != Accumulation::none);
  });
  return adds;
}

AxisId Function::find_axis(std::string_view axis_name) const {
  for (std::size_t i = 0; i < axes.size(); ++i)
    if (axes[i].name == axis_name) return AxisId(i);
  return {};
}

}  // namespace flashcore::ir
