#include "dsl/ir/type_rules.h"

#include <algorithm>

#include <fmt/format.h>

namespace flashcore::ir {
namespace {

/// One op and the values around it, with the words to complain about it.
struct Rule {
  const Function& f;
  const Op& op;

  [[nodiscard]] const TileType& type(std::size_t i) const { return f[op.operands[i]].type; }
  [[nodiscard]] std::string text(std::size_t i) const { return describe(f, type(i)); }
  [[noreturn]] void refuse(std::string what, std::string why, std::string fix) const {
    throw SpecError({std::move(what), std::move(why), std::move(fix), op.where});
  }
  void takes(std::size_t count) const {
    if (op.operands.size() != count)
      refuse(fmt::format("{} with {} operands", name_of(op.code), op.operands.size()),
             fmt::format("it takes {}", count), "as many operands as that");
  }
};

bool is_float_only(OpCode code) {
  switch (code) {
    case OpCode::exp:
    case OpCode::exp2:
    case OpCode::log:
    case OpCode::log2:
    case OpCode::sqrt:
    case OpCode::tanh:
    case OpCode::sin:
    case OpCode::cos:
    case OpCode::tan:
    case OpCode::atan:
    case OpCode::erf:
    case OpCode::expm1:
    case OpCode::log1p:
    case OpCode::floor:
    case OpCode::round:
    case OpCode::reciprocal:
      return true;
    default:
      return false;
  }
}

TileType source_type(const Function& f, const Op& op) {
  if (op.code == OpCode::parameter) return {f[op.parameter].dtype, {}};
  if (op.code == OpCode::has_counter || op.code == OpCode::first_thread ||
      op.code == OpCode::owns_rows)
    return {DType::i1, {}};
  if (op.code == OpCode::dimension) return {DType::i32, {}};
  TileType type{DType::i32, {}};
  if (op.code == OpCode::thread_begin || op.code == OpCode::thread_offset) type.axes = {op.axis};
  if (op.code == OpCode::index && f[op.axis].kind != AxisKind::parallel) type.axes = {op.axis};
  return type;
}

/// The union of the operands' axes, in the order of the widest operand. Vectors have no order to
/// give: theirs is that of the declarations, so that a mask may name keys or queries first.
std::vector<AxisId> broadcast_axes(const Rule& rule) {
  const std::size_t count = rule.op.operands.size();
  std::vector<AxisId> axes;
  for (std::size_t i = 0; i < count; ++i)
    if (rule.type(i).axes.size() > axes.size()) axes = rule.type(i).axes;
  for (std::size_t i = 0; i < count; ++i)
    for (AxisId axis : rule.type(i).axes)
      if (std::find(axes.begin(), axes.end(), axis) == axes.end()) {
        axes.push_back(axis);
        std::sort(axes.begin(), axes.end());
      }
  const std::string_view name = name_of(rule.op.code);
  if (axes.size() > 2)
    rule.refuse(fmt::format("{} of tiles over {} different axes", name, axes.size()),
                "a tile has at most two axes", "reduce one of the operands first");
  for (std::size_t i = 0; i < count; ++i)
    if (rule.type(i).axes.size() == 2 && rule.type(i).axes != axes)
      rule.refuse(fmt::format("{} of {} and {}", name, rule.text(0), rule.text(i)),
                  "the operands have the same axes in a different order", "transpose one of them");
  return axes;
}

TileType gather_type(const Rule& rule) {
  const Tensor& tensor = rule.f[rule.op.tensor];
  const std::string what = fmt::format("gather of {}", tensor.name);
  if (!tensor.gathered)
    rule.refuse(what, "it was not declared for it", "declare it as a gathered input");
  if (rule.op.operands.size() != tensor.dims.size())
    rule.refuse(fmt::format("{} with {} indices", what, rule.op.operands.size()),
                fmt::format("it has {} dimensions", tensor.dims.size()),
                "give one index a dimension");
  for (std::size_t i = 0; i < rule.op.operands.size(); ++i)
    if (rule.type(i).dtype != DType::i32)
      rule.refuse(fmt::format("{} with an index of type {}", what, rule.text(i)),
                  "positions are i32", "cast(index, i32)");
  return {value_type(tensor.dtype), broadcast_axes(rule)};
}

TileType elementwise_type(const Rule& rule) {
  const OpCode code = rule.op.code;
  if (code == OpCode::gather) return gather_type(rule);
  rule.takes(static_cast<std::size_t>(operand_count(code)));
  std::vector<AxisId> axes = broadcast_axes(rule);

  const bool is_where = code == OpCode::where;
  const std::size_t lead = is_where ? 1 : 0;
  const DType dtype = rule.type(lead).dtype;
  const std::string what = fmt::format("{} of {}", name_of(code), rule.text(lead));
  for (std::size_t i = lead; i < rule.op.operands.size(); ++i)
    if (rule.type(i).dtype != dtype)
      rule.refuse(fmt::format("{} and {}", what, rule.text(i)),
                  "the dtypes differ and FlashCore converts nothing by itself", "cast one of them");
  if (is_where && rule.type(0).dtype != DType::i1)
    rule.refuse(fmt::format("where with a condition of type {}", rule.text(0)),
                "a condition has dtype i1", "compare something: where(x > 0.f, a, b)");
  if (is_logic(code) && dtype != DType::i1)
    rule.refuse(what, "it takes conditions (i1)", "compare something first");
  if (is_float_only(code) && dtype != DType::f32)
    rule.refuse(what, "it is computed in f32 only", "cast(x, f32) first");
  if (!is_logic(code) && !is_where && dtype == DType::i1)
    rule.refuse(what, "conditions have no arithmetic",
                "where(condition, 1.f, 0.f) makes numbers of them");
  if (is_half(dtype) && !is_where)
    rule.refuse(what, "arithmetic is done in f32; 16-bit types are for memory and products",
                "cast(x, f32) first");
  const bool whole = code == OpCode::mod || code == OpCode::quotient;
  if (whole && dtype != DType::i32) rule.refuse(what, "it takes integers", "cast to i32");
  return {is_comparison(code) ? DType::i1 : dtype, std::move(axes)};
}

TileType reduction_type(const Rule& rule) {
  rule.takes(1);
  TileType type = rule.type(0);
  if (!type.has(rule.op.axis))
    rule.refuse(fmt::format("{} of {} along {}", name_of(rule.op.code), rule.text(0),
                            rule.f[rule.op.axis].name),
                "the tile has no such axis", "name one of its axes");
  const bool extremum = rule.op.code != OpCode::reduce_sum;
  if (type.dtype != DType::f32 && !(extremum && type.dtype == DType::i32))
    rule.refuse(fmt::format("{} of {}", name_of(rule.op.code), rule.text(0)),
                extremum ? "the extremes of f32 and i32 are taken" : "sums are done in f32",
                "cast(x, f32) first");
  std::erase(type.axes, rule.op.axis);
  return type;
}

TileType transpose_type(const Rule& rule) {
  rule.takes(1);
  TileType type = rule.type(0);
  if (type.axes.size() != 2)
    rule.refuse(fmt::format("transpose of {}", rule.text(0)), "it takes a tile with two axes",
                "leave it out: a vector has no order of axes");
  std::swap(type.axes[0], type.axes[1]);
  return type;
}

TileType dot_type(const Rule& rule) {
  if (rule.op.operands.size() != 3) rule.takes(2);
  const Function& f = rule.f;
  const TileType &a = rule.type(0), &b = rule.type(1);
  const std::string what = fmt::format("dot of {} and {}", rule.text(0), rule.text(1));
  if (a.axes.size() != 2 || b.axes.size() != 2)
    rule.refuse(what, "both operands need two axes",
                "load vectors over a second axis of length 1, or multiply elements and reduce_sum");
  if (a.axes[1] != b.axes[0])
    rule.refuse(
        what, fmt::format("the inner axes differ: {} and {}", f[a.axes[1]].name, f[b.axes[0]].name),
        "transpose an operand, or load both over the same axis");
  if (a.axes[0] == b.axes[1])
    rule.refuse(what, "the outer axes are the same",
                "use two axes, also where their lengths agree");
  if (rule.op.rounding == OperandRounding::tf32) {
    if (a.dtype != DType::f32 || b.dtype != DType::f32)
      rule.refuse(what + " as tf32", "what is rounded to tf32 is f32",
                  "leave the rounding out, or cast both to f32");
  } else if (!is_half(a.dtype) || a.dtype != b.dtype) {
    const bool floats = a.dtype == DType::f32 && b.dtype == DType::f32;
    rule.refuse(what, "tensor cores take two operands of one 16-bit type",
                floats ? "cast both to f16 or bf16, or have them rounded: OperandRounding::tf32"
                       : "cast both to f16 or bf16");
  }
  const TileType type{DType::f32, {a.axes[0], b.axes[1]}};
  if (rule.op.operands.size() == 3 && rule.type(2) != type)
    rule.refuse(fmt::format("{} added to {}", what, rule.text(2)),
                fmt::format("the product is {}", describe(f, type)), "add a tile of this type");
  return type;
}

}  // namespace

std::string describe(const Function& f, const TileType& type) {
  std::string text(name_of(type.dtype));
  for (std::size_t i = 0; i < type.axes.size(); ++i)
    text += (i ? ", " : "[") + f[type.axes[i]].name;
  return type.axes.empty() ? text : text + "]";
}

bool is_comparison(OpCode code) { return code >= OpCode::lt && code <= OpCode::ne; }

bool is_logic(OpCode code) {
  return code == OpCode::logical_and || code == OpCode::logical_or || code == OpCode::logical_not;
}

int operand_count(OpCode code) {
  if (code == OpCode::where || code == OpCode::fma) return 3;
  return code >= OpCode::add ? 2 : 1;
}

TileType infer_type(const Function& f, const Op& op) {
  const Rule rule{f, op};
  switch (kind_of(op.code)) {
    case OpKind::source:
      return source_type(f, op);
    case OpKind::elementwise:
      return elementwise_type(rule);
    case OpKind::reduction:
      return reduction_type(rule);
    default:
      break;
  }
  if (op.code == OpCode::transpose) return transpose_type(rule);
  if (op.code == OpCode::dot) return dot_type(rule);
  if (op.code == OpCode::load) return {f[op.tensor].dtype, accessed_axes(f, op)};
  if (op.code == OpCode::searchsorted) {
    const Tensor& tensor = f[op.tensor];
    if (tensor.dtype != DType::i32 || tensor.dims.size() != 1)
      rule.refuse(fmt::format("searchsorted in {}", tensor.name), "it searches a list of i32",
                  "an input of dtype i32 with one dimension");
    rule.takes(2);
    for (std::size_t i = 0; i < 2; ++i)
      if (rule.type(i) != TileType{DType::i32, {}})
        rule.refuse(fmt::format("searchsorted of {}", rule.text(i)), "it takes i32 scalars",
                    "search for one number");
    return {DType::i32, {}};
  }
  if (op.code == OpCode::all_lanes) {
    rule.takes(1);
    if (rule.type(0).dtype != DType::i1)
      rule.refuse(fmt::format("all_lanes of {}", rule.text(0)), "it asks whether a condition holds",
                  "compare first");
    return {DType::i1, {}};
  }
  if (op.code == OpCode::all_within) {
    rule.takes(2);
    if (rule.type(0).dtype != DType::f32 || rule.type(1) != TileType{DType::f32, {}})
      rule.refuse(fmt::format("all_within of {} and {}", rule.text(0), rule.text(1)),
                  "it compares f32 elements with an f32 scalar", "cast them first");
    return {DType::i1, {}};
  }
  if (op.code == OpCode::in_place) rule.takes(1);
  if (op.code == OpCode::combine_partials || op.code == OpCode::cluster_read) rule.takes(1);
  return rule.type(
      0);  // convert, combine_partials, peer, in_place change where a tile lives, not what it is
}

TileType cast_type(const Function& f, const Op& op, DType dtype) {
  const Rule rule{f, op};
  rule.takes(1);
  const TileType& type = rule.type(0);
  if (dtype == DType::i1 || type.dtype == DType::i1)
    rule.refuse(fmt::format("cast of {} to {}", rule.text(0), name_of(dtype)),
                "conditions are not numbers", "compare, or use where");
  return {dtype, type.axes};
}

std::vector<AxisId> accessed_axes(const Function& f, const Op& op) {
  const Rule rule{f, op};
  const Tensor& tensor = f[op.tensor];
  const std::string what = fmt::format("{} of {}", name_of(op.code), tensor.name);
  if (tensor.gathered && !tensor.aligned_rows)
    rule.refuse(what, "it was declared to be gathered, with any strides and dtype",
                "gather(tensor, {indices}), or declare it with aligned_rows");
  if (op.coordinates.size() != tensor.dims.size())
    rule.refuse(fmt::format("{} with {} indices", what, op.coordinates.size()),
                fmt::format("it has {} dimensions", tensor.dims.size()),
                "give one axis or scalar a dimension");
  std::vector<AxisId> axes;
  for (std::size_t i = 0; i < op.coordinates.size(); ++i) {
    const Coordinate& c = op.coordinates[i];
    if (c.value && (f[c.value].type.dtype != DType::i32 || f[c.value].type.axes.size() > 1))
      rule.refuse(fmt::format("{} with an index of type {}", what, describe(f, f[c.value].type)),
                  "a position is an i32 scalar, or a tile of i32 over an axis of what is accessed",
                  "name the axis, or reduce and cast the index");
    const AxisId along = axis_of(f, c);
    if (!along) {
      if (!c.value && !c.computed)
        rule.refuse(what, fmt::format("dimension {} has no index", i),
                    "give it an axis or an i32 scalar");
      continue;
    }
    const Axis& axis = f[along];
    if (axis.kind == AxisKind::parallel)
      rule.refuse(fmt::format("{} over {}", what, axis.name),
                  "a parallel axis has one position a block, not a tile",
                  "index it by index(axis)");
    if (!is_computed(f, c) && axis.extent != tensor.dims[i])
      rule.refuse(fmt::format("{} over {}", what, axis.name),
                  fmt::format("the axis has length {} and dimension {} of {} has {}",
                              axis.extent.text(), i, tensor.name, tensor.dims[i].text()),
                  "use an axis of the dimension's length");
    const auto same = [&](const Coordinate& other) {
      return axis_of(f, other) == along && !is_computed(f, other);
    };
    if (same(c) && std::count_if(op.coordinates.begin(), op.coordinates.end(), same) > 1)
      rule.refuse(fmt::format("{} over {} twice", what, axis.name), "a tile has each axis once",
                  "use two axes, also where their lengths agree");
    if (std::find(axes.begin(), axes.end(), along) == axes.end()) axes.push_back(along);
  }
  if (axes.size() > 2)
    rule.refuse(fmt::format("{} over {} axes", what, axes.size()), "a tile has at most two axes",
                "index the other dimensions by scalars");
  return axes;
}

void check_store(const Function& f, const Op& op) {
  const Rule rule{f, op};
  rule.takes(1);
  const Tensor& tensor = f[op.tensor];
  if (!tensor.output)
    rule.refuse(fmt::format("store to {}", tensor.name), "it is an input", "declare an output");
  const TileType wanted{tensor.dtype, accessed_axes(f, op)};
  if (op.accumulation != Accumulation::none && tensor.dtype != DType::f32)
    rule.refuse(fmt::format("a store that adds to {}", tensor.name),
                fmt::format("it is {}, and sums are kept in f32", name_of(tensor.dtype)),
                "declare an f32 output, and round it in a kernel behind this one");
  if (rule.type(0) != wanted)
    rule.refuse(fmt::format("store of {} to {}", rule.text(0), tensor.name),
                fmt::format("the indices name a tile of type {}", describe(f, wanted)),
                rule.type(0).dtype != wanted.dtype ? "cast it first"
                                                   : "index the output by the axes of the tile");
}

}  // namespace flashcore::ir
