#include "dsl/program_builder.h"

#include <cctype>

#include <fmt/format.h>

#include "dsl/handles.h"
#include "dsl/ir/verify.h"

namespace flashcore {

ProgramBuilder::ProgramBuilder(std::string name) : ops_(function_, {}) {
  function_.name = std::move(name);
  function_.body = function_.add_block();
  ops_.set_block(function_.body);
}

void ProgramBuilder::check_name(const std::string& name, const At& at) {
  bool word = !name.empty() && (std::isalpha(static_cast<unsigned char>(name[0])) != 0);
  for (char c : name) word = word && (std::isalnum(static_cast<unsigned char>(c)) || c == '_');
  if (!word)
    throw SpecError({fmt::format("\"{}\" as a name", name),
                     "names become identifiers of the generated kernel",
                     "use letters, digits and underscores, a letter first", at});
  bool taken = static_cast<bool>(function_.find_axis(name));
  for (const auto& tensor : function_.tensors) taken = taken || tensor.name == name;
  for (const auto& parameter : function_.parameters) taken = taken || parameter.name == name;
  if (taken)
    throw SpecError({fmt::format("a second axis or argument named \"{}\"", name),
                     "launches and schedules find them by name", "choose another name", at});
}

Axis ProgramBuilder::add_axis(ir::Axis axis, const At& at) {
  check_name(axis.name, at);
  if (axis.extent.is_static() && axis.extent.value == 0)
    throw SpecError({fmt::format("axis {} of length 0", axis.name),
                     "a constant length is at least 1", "name the extent to bind it at launch",
                     at});
  return {this, function_.add_axis(std::move(axis))};
}

Axis ProgramBuilder::parallel(std::string name, Extent extent, const At& at) {
  return add_axis({std::move(name), ir::AxisKind::parallel, std::move(extent)}, at);
}
Axis ProgramBuilder::parallel_tiles(std::string name, Extent extent, const At& at) {
  return add_axis({std::move(name), ir::AxisKind::parallel_tiles, std::move(extent)}, at);
}
Axis ProgramBuilder::tiles(std::string name, Extent extent, const At& at) {
  return add_axis({std::move(name), ir::AxisKind::tiles, std::move(extent)}, at);
}
Axis ProgramBuilder::alias(std::string name, Axis axis, const At& at) {
  require_own(this, axis.owner, "axis", at);
  ir::Axis other = function_[axis.id];
  if (other.kind != ir::AxisKind::tiles)
    throw SpecError({fmt::format("{} as another name of the {} axis {}", name,
                                 ir::name_of(other.kind), other.name),
                     "an alias shares the tile that a loop is at, and no loop walks this axis",
                     "declare a second axis of the same extent, or an alias of an axis of tiles",
                     at});
  other.name = std::move(name);
  other.alias_of = function_.origin(axis.id);
  return add_axis(std::move(other), at);
}
Axis ProgramBuilder::whole(std::string name, int extent, const At& at) {
  return add_axis({std::move(name), ir::AxisKind::whole, Extent(extent)}, at);
}

Tensor ProgramBuilder::input(std::string name, DType dtype, std::vector<Extent> dims,
                             const At& at) {
  check_name(name, at);
  return {this, function_.add_tensor({std::move(name), dtype, std::move(dims), false})};
}
Tensor ProgramBuilder::gathered_input(std::string name, DType dtype, std::vector<Extent> dims,
                                      bool unit_stride, bool aligned_rows, const At& at) {
  check_name(name, at);
  return {this, function_.add_tensor({.name = std::move(name),
                                      .dtype = dtype,
                                      .dims = std::move(dims),
                                      .gathered = true,
                                      .unit_stride = unit_stride,
                                      .aligned_rows = aligned_rows})};
}
Tensor ProgramBuilder::output(std::string name, DType dtype, std::vector<Extent> dims,
                              const At& at) {
  check_name(name, at);
  return {this, function_.add_tensor({std::move(name), dtype, std::move(dims), true})};
}

Tile ProgramBuilder::scalar(std::string name, DType dtype, bool positive, const At& at) {
  check_name(name, at);
  if (dtype != DType::f32 && dtype != DType::i32)
    throw SpecError({fmt::format("scalar {} of type {}", name, name_of(dtype)),
                     "scalar arguments are f32 or i32", "use one of them", at});
  const ir::ParameterId id = function_.add_parameter({name, dtype, positive});
  return Tile(this, ops_.at(at).parameter(id)).named(name);
}

void ProgramBuilder::segment(Axis axis, Operand begin, Operand end, const At& at) {
  require_own(this, axis.owner, "axis", at);
  const auto bound = [&](const Operand& operand) {
    if (operand.is_tile() || operand.empty) {
      require_own(this, operand.tile.owner(), "tile", operand.where);
      return operand.tile.id();
    }
    return ops_.at(at).constant(operand.number, DType::i32);
  };
  const ir::ValueId first = bound(begin), last = bound(end);
  const ir::AxisId placed = function_.origin(axis.id);
  for (std::size_t i = 0; i < function_.axes.size(); ++i)
    if (function_.origin(ir::AxisId(i)) == placed) function_.axes[i].ragged = true;
  ops_.at(at).segment(placed, first, last);
}

void ProgramBuilder::segment(Axis axis, Operand begin, Operand end, const Tile& longest,
                             const At& at) {
  require_own(this, longest.owner(), "tile", at);
  require_own(this, axis.owner, "axis", at);
  const ir::Op* made_by = function_.definition(longest.id());
  if (!made_by || made_by->code != ir::OpCode::parameter || longest.dtype() != DType::i32)
    throw SpecError({fmt::format("the longest segment of {}", function_[axis.id].name),
                     "it sizes the grid before anything is computed", "an i32 scalar argument",
                     at});
  function_[axis.id].longest = function_[made_by->parameter].name;
  segment(axis, begin, end, at);
}

Tile ProgramBuilder::constant(double value, DType dtype, const At& at) {
  return {this, ops_.at(at).constant(value, dtype)};
}

Tile ProgramBuilder::fill(const std::vector<Axis>& axes, double value, DType dtype, const At& at) {
  std::vector<ir::AxisId> ids;
  for (const Axis& axis : axes) {
    require_own(this, axis.owner, "axis", at);
    ids.push_back(axis.id);
  }
  return {this, ops_.at(at).constant(value, dtype, std::move(ids))};
}

std::vector<Tile> ProgramBuilder::run_loop(Axis axis, std::vector<Tile> initial, LoopOrder order,
                                           const At& at, const Run& body) {
  require_own(this, axis.owner, "axis", at);
  for (const Tile& tile : initial) require_own(this, tile.owner(), "tile", at);
  if (function_[axis.id].kind != ir::AxisKind::tiles)
    throw SpecError({fmt::format("a loop over {}", function_[axis.id].name),
                     fmt::format("its kind is {}", name_of(function_[axis.id].kind)),
                     "declare it with tiles(...) to loop over it", at});
  const ir::BlockId outer = ops_.block(), region = function_.add_block();

  function_.add_argument(region, {DType::i32, {}}, function_[axis.id].name + "_tile");
  std::vector<Tile> arguments;
  for (const Tile& tile : initial) {
    const ir::Value value = function_[tile.id()];
    arguments.emplace_back(this, function_.add_argument(region, value.type, value.name));
  }
  ops_.set_block(region);
  const std::vector<Tile> next = body(arguments);
  ir::Op yield{.code = ir::OpCode::yield};
  for (const Tile& tile : next) require_own(this, tile.owner(), "tile", at);
  for (const Tile& tile : next) yield.operands.push_back(tile.id());
  ops_.at(at).append(std::move(yield), {});
  ops_.set_block(outer);

  ir::Op loop{.code = ir::OpCode::loop,
              .axis = axis.id,
              .body = region,
              .unordered = order == LoopOrder::unordered};
  std::vector<ir::TileType> types;
  for (std::size_t i = 0; i < initial.size(); ++i) {
    loop.operands.push_back(initial[i].id());
    types.push_back(function_[initial[i].id()].type);
    if (function_[next[i].id()].type != types.back())
      throw SpecError({fmt::format("loop over {}: carried value {} changes its type",
                                   function_[axis.id].name, i + 1),
                       fmt::format("it starts as {} and comes back as {}",
                                   ir::describe(function_, types.back()),
                                   ir::describe(function_, function_[next[i].id()].type)),
                       "start it with fill({axes}, value) over the axes it has in the body", at});
  }
  const ir::OpId id = ops_.at(at).append(std::move(loop), types);
  std::vector<Tile> results;
  for (std::size_t i = 0; i < initial.size(); ++i) {
    function_[function_[id].results[i]].name = function_[initial[i].id()].name;
    results.emplace_back(this, function_[id].results[i]);
  }
  return results;
}

void ProgramBuilder::loop(Axis axis, const std::function<void()>& body, LoopOrder order,
                          const At& at) {
  run_loop(axis, {}, order, at, [&](const std::vector<Tile>&) {
    body();
    return std::vector<Tile>{};
  });
}

Program ProgramBuilder::finish(const At& at) {
  bool stores = false;
  ir::for_each_op(function_, function_.body, [&](const ir::Op& op, ir::BlockId) {
    stores = stores || op.code == ir::OpCode::store;
  });
  if (!stores)
    throw SpecError({fmt::format("program {} stores nothing", function_.name),
                     "a kernel without an output has no effect", "store(output(...), tile)", at});
  ir::verify(function_);
  return Program(std::move(function_));
}

}  // namespace flashcore
