#include "dsl/probes.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include <fmt/format.h>

#include "dsl/error.h"
#include "dsl/ir/builder.h"
#include "dsl/ir/verify.h"
#include "dsl/shortened.h"

namespace flashcore {
namespace {

using namespace ir;

/// A value and where it stands: its block, and the loops around it, outermost first.
struct Place {
  ValueId value;
  BlockId block;
  std::vector<AxisId> loops;
};

class ProbeInserter {
 public:
  explicit ProbeInserter(Function& f) : f_(f) { collect(f_.body, {}); }

  void insert(const std::string& name) {
    const auto found = named_.find(name);
    if (found == named_.end())
      throw SpecError({fmt::format("a probe of \"{}\"", shortened(name)),
                       fmt::format("program {} names no value so", f_.name),
                       fmt::format("one of {}", list()),
                       {}});
    const Place& place = found->second;
    const Complaint obstacle = obstacle_of(place);
    if (!obstacle.why.empty())
      throw SpecError({fmt::format("a probe of \"{}\"", shortened(name)), obstacle.why,
                       obstacle.fix.empty() ? fmt::format("one of {}", list()) : obstacle.fix,
                       obstacle.where});
    store(place, probe_tensor(name));
  }

 private:
  /// Notes every named value in the order in which the program makes them, so that the last one
  /// wins.
  void collect(BlockId block, const std::vector<AxisId>& loops) {
    const auto note = [&](ValueId value) {
      if (!f_[value].name.empty()) named_[f_[value].name] = {value, block, loops};
    };
    for (ValueId argument : f_[block].arguments) note(argument);
    for (OpId id : f_[block].ops) {
      if (const BlockId body = f_[id].body) {
        std::vector<AxisId> inner = loops;
        inner.push_back(f_[id].axis);
        collect(body, inner);
      }
      for (ValueId result : f_[id].results) note(result);
    }
  }

  /// Why a value cannot be stored, or nothing. Without a fix, other names are what helps.
  [[nodiscard]] Complaint obstacle_of(const Place& place) const {
    const TileType& type = f_[place.value].type;
    const Op* op = f_.definition(place.value);
    const Location where = op ? op->where : Location{};
    if (type.is_scalar()) return {{}, "it is a scalar, not a tile", {}, where};
    for (AxisId loop : place.loops)
      if (!type.has(loop))
        return {{}, changes_with(fmt::format("every tile of {}", f_[loop].name), loop), {}, where};
    for (std::size_t i = 0; i < f_.axes.size(); ++i)
      if (f_.axes[i].kind == AxisKind::parallel_tiles && !type.has(AxisId(i)))
        return {{},
                changes_with(fmt::format("the block's tile of {}", f_.axes[i].name), AxisId(i)),
                {},
                where};
    if (op && op->code == OpCode::load)
      return {{},
              fmt::format("it is {} as the array holds it", f_[op->tensor].name),
              "look at the array, or probe what is computed from it",
              where};
    if (op && op->code == OpCode::transpose)
      return {{}, "it is another tile, read transposed", "probe the tile itself", where};
    if (is_half(type.dtype) && feeds_product(place.value))
      return {{},
              "it is packed into the registers of a product",
              "give the f32 tile before the cast a name, and probe that",
              where};
    return {};
  }

  [[nodiscard]] std::string changes_with(const std::string& what, AxisId axis) const {
    return fmt::format("it changes with {} and has no axis {} to keep the tiles apart", what,
                       f_[axis].name);
  }

  [[nodiscard]] bool feeds_product(ValueId value) const {
    bool feeds = false;
    for_each_op(f_, f_.body, [&](const Op& op, BlockId) {
      if (op.code == OpCode::dot)
        feeds = feeds || op.operands[0] == value || op.operands[1] == value;
    });
    return feeds;
  }

  /// The names that can be probed, in words.
  [[nodiscard]] std::string list() const {
    std::vector<std::pair<ValueId, std::string>> possible;
    for (const auto& [name, place] : named_)
      if (obstacle_of(place).why.empty()) possible.emplace_back(place.value, name);
    std::sort(possible.begin(), possible.end());
    std::string text;
    for (const auto& [value, name] : possible) text += (text.empty() ? "" : ", ") + name;
    return text.empty() ? "none: name a tile with .named(...)" : text;
  }

  void store(const Place& place, const std::string& tensor_name) {
    const TileType type = f_[place.value].type;
    const bool integer = type.dtype == DType::i32;
    Tensor tensor{tensor_name, integer ? DType::i32 : DType::f32};
    tensor.output = true;
    tensor.unwritten = integer ? std::numeric_limits<std::int32_t>::min()
                               : std::numeric_limits<double>::quiet_NaN();
    for (const Axis& axis : f_.axes)
      if (axis.kind == AxisKind::parallel) tensor.dims.push_back(axis.extent);
    for (AxisId axis : type.axes) tensor.dims.push_back(f_[axis].extent);
    for (const Tensor& other : f_.tensors)
      if (other.name == tensor.name)
        throw SpecError({fmt::format("a second output {}", tensor.name),
                         "a value is probed once, and no tensor of the program may have that name",
                         "name each value once",
                         {}});
    const TensorId id = f_.add_tensor(std::move(tensor));

    // At the end of the block, where what passes do to the value shows; a pass brings it back.
    const OpId yield = f_[place.block].ops.empty() ? OpId{} : f_[place.block].ops.back();
    const bool yields = yield && f_[yield].code == OpCode::yield;
    if (yields) f_[place.block].ops.pop_back();
    const Op* op = f_.definition(place.value);
    Builder b(f_, place.block);
    b.at(op ? op->where : Location{});
    ValueId value = place.value;
    if (type.dtype == DType::i1)
      value = b.elementwise(OpCode::where,
                            {value, b.constant(1, DType::f32), b.constant(0, DType::f32)});
    else if (!integer)
      value = b.cast(value, DType::f32);
    std::vector<Coordinate> coordinates;
    for (std::size_t i = 0; i < f_.axes.size(); ++i)
      if (f_.axes[i].kind == AxisKind::parallel) coordinates.push_back({{}, b.index(AxisId(i))});
    for (AxisId axis : type.axes) coordinates.push_back({axis, {}});
    b.store(id, std::move(coordinates), value);
    if (yields) f_[place.block].ops.push_back(yield);
  }

  Function& f_;
  std::map<std::string, Place> named_;
};

}  // namespace

Program with_probes(const Program& program, std::span<const std::string> names) {
  Function f = program.function();
  ProbeInserter inserter(f);
  for (const std::string& name : names) inserter.insert(name);
  verify(f);
  return Program(std::move(f));
}

std::string probe_tensor(const std::string& name) { return "probe_" + name; }

}  // namespace flashcore
