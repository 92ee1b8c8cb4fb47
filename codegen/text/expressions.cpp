// The text of values: scalars by name, elements of tiles under the loops around them.
#include <algorithm>
#include <cmath>

#include <fmt/ranges.h>

#include "codegen/analysis/register_interference.h"
#include "codegen/print/kernel_printer.h"
#include "codegen/text/index_text.h"
#include "dsl/error.h"
#include "dsl/expression_writer.h"

namespace flashcore {

using namespace ir;

namespace {

constexpr std::size_t longest_remark = 400;

/// Operations that the device prelude has a function of the same name for.
constexpr OpCode device_functions[] = {
    OpCode::atan,  OpCode::cos,  OpCode::erf,    OpCode::exp2,  OpCode::expm1,
    OpCode::floor, OpCode::fma,  OpCode::log1p,  OpCode::log2,  OpCode::limit_scale,
    OpCode::max,   OpCode::min,  OpCode::mul_rn, OpCode::round, OpCode::reciprocal,
    OpCode::sin,   OpCode::sqrt, OpCode::tan};

/// The operator of C++ that computes an operation; empty where it has none, or another meaning for it.
std::string_view operator_of(OpCode code) {
  switch (code) {
    case OpCode::logical_or:
      return "||";
    case OpCode::logical_and:
      return "&&";
    case OpCode::quotient:
      return "/";
    case OpCode::div:
    case OpCode::mod:
      return {};
    default:
      return ExpressionWriter::infix(code).sign;
  }
}

std::string negated(const std::string& x) { return x.starts_with("-") ? "-(" + x + ")" : "-" + x; }

/// Which power of two a number is that is known here; -1 for any other.
int power_of_two(const Function& f, ValueId value) {
  const double* number = constant_of(f, value);
  for (int shift = 0; number && shift < 31; ++shift)
    if (*number == static_cast<double>(1 << shift)) return shift;
  return -1;
}

/// What a fragment and a slot add to a position.
std::string offset_text(const AxisLayout& layout, const std::string& fragment,
                        const std::string& slot) {
  return plus(times(fragment, layout.fragment_size()), times(slot, layout.slot_stride));
}

/// Whether a value's elements are variables of the loops around them: no array holds them.
bool is_local(const Function& f, ValueId value) {
  const Op* op = f.definition(value);
  return op && kind_of(op->code) == OpKind::elementwise && !f[value].type.is_scalar() &&
         !f[value].array;
}

}  // namespace

std::string KernelPrinter::constant(std::string_view type, std::string_view wanted,
                                    std::string_view text) {
  std::string name = names_.unique(wanted);
  out_.line("const {} {} = {};", type, name, text);
  return name;
}

std::string KernelPrinter::number(double value, DType dtype) {
  if (dtype == DType::i1) return value != 0 ? "true" : "false";
  if (dtype == DType::i32) return fmt::format("{}", static_cast<long long>(value));
  if (std::isnan(value)) return "fc::not_a_number()";
  if (std::isinf(value)) return value > 0 ? "fc::infinity()" : "-fc::infinity()";
  const auto single = static_cast<float>(value);
  if (single == -3.402823466e+38f) return "fc::lowest()";
  std::string text = fmt::format("{}", single);
  if (text.find_first_of(".e") == std::string::npos) text += ".";
  return text + "f";
}

std::string KernelPrinter::extent(AxisId axis) const {
  if (!f_[axis].ragged) return fields_.extent(f_[axis].extent);
  const Segment& segment = segments_[f_.origin(axis).index];
  if (segment.length.empty())
    throw InternalError(fmt::format("no length of axis {} here", f_[axis].name));
  return segment.length;
}

/// A condition: a position of a tile lies on its axis.
std::string KernelPrinter::lies_on(AxisId axis, const std::string& at) const {
  return f_[axis].end_aligned ? at + " >= 0" : fmt::format("{} < {}", at, extent(axis));
}

std::string KernelPrinter::tile_count(AxisId axis) const {
  const int tile = f_[axis].tile;
  if (const auto length = f_[axis].fixed_length())
    return std::to_string((*length + tile - 1) / tile);
  return fmt::format("({} + {}) / {}", extent(axis), tile - 1, tile);
}

std::string KernelPrinter::begin(AxisId axis) const {
  if (f_[axis].kind == AxisKind::whole) return "0";
  const auto found = begins_.find(f_.origin(axis).index);
  if (found == begins_.end())
    throw InternalError(fmt::format("no position of axis {} here", f_[axis].name));
  return found->second;
}

std::string KernelPrinter::scalar(ValueId value) {
  const Op* op = f_.definition(value);
  if (op) {
    switch (op->code) {
      case OpCode::constant:
        return number(op->number, f_[value].type.dtype);
      case OpCode::parameter:
        return fields_.scalar(op->parameter.index);
      case OpCode::extent:
        return extent(op->axis);
      case OpCode::cluster_rank:
        return cluster_rank_;
      case OpCode::has_counter:
        return fmt::format("({} != 0)", fields_.tile_counter());
      case OpCode::first_thread:
        return fmt::format("(thread == {})", role_->first_warp * 32);
      case OpCode::owns_rows:
        return fmt::format("(warp % {} == {})", op->blocks, cluster_rank_);
      case OpCode::dimension:
        return fields_.extent(f_[op->tensor].dims[static_cast<std::size_t>(op->number)]);
      case OpCode::index:
      case OpCode::tile_begin:
        return begin(op->axis);
      case OpCode::tile_count: {
        const std::string count = tile_count(op->axis);
        return f_[op->axis].fixed_length() ? count : fmt::format("({})", count);
      }
      default:
        break;
    }
  }
  if (storage_[value.index].empty())
    throw InternalError(fmt::format("scalar {} is used before it is printed", label(value)));
  return storage_[value.index];
}

std::string KernelPrinter::position(AxisId axis, const AxisLayout& layout, const Cursor& cursor) {
  std::string text = begin(axis);
  if (const std::string* name = lane_offset_of({axis, layout})) text = plus(text, *name);
  for (std::size_t k = 0; k < cursor.axes.size(); ++k)
    if (cursor.axes[k] == axis)
      text = plus(text, offset_text(layout, cursor.fragments[k], cursor.slots[k]));
  return text;
}

/// A position, or a part of one: it takes the layout that the tile around it has along the axis.
std::string KernelPrinter::position_element(const Op& op, Cursor cursor) {
  const auto along = std::ranges::find(cursor.axes, op.axis);
  if (along == cursor.axes.end())
    throw InternalError(fmt::format("no layout for the positions of {}", f_[op.axis].name));
  const auto k = static_cast<std::size_t>(along - cursor.axes.begin());
  const AxisLayout& layout = cursor.layouts[k];
  if (op.code == OpCode::thread_begin) cursor.fragments[k] = cursor.slots[k] = "0";
  if (op.code != OpCode::thread_offset)
    return fmt::format("({})", position(op.axis, layout, cursor));
  return fmt::format("({})", offset_text(layout, cursor.fragments[k], cursor.slots[k]));
}

std::string KernelPrinter::element(ValueId value, const Cursor& cursor) {
  const Op* op = f_.definition(value);
  const TileType& type = f_[value].type;
  if (op && op->code == OpCode::constant) return number(op->number, type.dtype);
  if (type.is_scalar()) return scalar(value);
  if (op && (op->code == OpCode::index || op->code == OpCode::thread_begin ||
             op->code == OpCode::thread_offset))
    return position_element(*op, cursor);
  const std::string& array = storage_[value.index];
  if (array.empty())
    throw InternalError(fmt::format("tile {} is used before it is printed", label(value)));
  if (f_[value].layout.space == Space::opaque)
    return fmt::format("{}[{}][{}]", array, cursor.fragments[0], cursor.fragments[1]);
  if (is_local(f_, value)) return array;
  if (is_condition_tile(f_, value))
    return fmt::format("fc::condition({}, {}, {}, {})", array, cursor.fragments[0],
                       cursor.fragments[1], cursor.element);
  if (f_[value].layout.space == Space::operand)  // two fragments side by side, in pairs of columns
    return fmt::format("fc::unpack<{0}>({1}[{2}][{3} / 2][{3} % 2 * 2 + {4} / 2], {4} % 2)",
                       element_type(type.dtype), array, cursor.fragments[0], cursor.fragments[1],
                       cursor.element);
  if (type.axes == cursor.axes && type.axes.size() == 2)
    return fmt::format("{}[{}][{}][{}]", array, cursor.fragments[0], cursor.fragments[1],
                       cursor.element);
  if (type.axes.size() == 1)
    for (std::size_t k = 0; k < cursor.axes.size(); ++k)
      if (cursor.axes[k] == type.axes[0])
        return fmt::format("{}[{}][{}]", array, cursor.fragments[k], cursor.slots[k]);
  throw InternalError(fmt::format("tile {} does not fit the loops it is read in", label(value)));
}

/// "fc::gather(p.slopes, head * p.slopes_stride_0, fc::within(head, p.slopes_n0))". An index that
/// is a position and a constant of the unrolled loops is multiplied, and compared with the
/// dimension's end, part by part: the position's serve all elements, and what is left for each is
/// an addition and a comparison with a constant. Where no index is outside, the position's part
/// goes to the pointer, and the rest is a constant of the instruction.
std::string KernelPrinter::gathered(const Op& op, const std::vector<SplitIndex>& indices) const {
  const Tensor& tensor = f_[op.tensor];
  std::string base, rest, inside;
  for (std::size_t d = 0; d < indices.size(); ++d) {
    const std::string length = fields_.extent(tensor.dims[d]), step = fields_.stride(op.tensor, d);
    const std::string at = op.wraps >> d & 1
                               ? fmt::format("fc::wrapped({}, {})", indices[d].base, length)
                               : indices[d].base;
    const std::string& more = indices[d].rest;
    append(base, " + ", times(at, step));
    if (more != "0") append(rest, " + ", times(more, step));
    append(inside, " && ",
           more == "0" ? fmt::format("fc::within({}, {})", at, length)
                       : fmt::format("{} < {} - {}", more, length, at));
  }
  const std::string pointer = fields_.tensor(op.tensor);
  if (op.inside)
    return fmt::format("fc::gather({} + ({}), {}, true)", pointer, base, rest.empty() ? "0" : rest);
  return fmt::format("fc::gather({}, {}{}, {})", pointer, base, rest.empty() ? "" : " + " + rest,
                     inside);
}

std::string KernelPrinter::expression(const Op& op, const std::vector<std::string>& x) const {
  const DType from = f_[op.operands[0]].type.dtype;
  const DType to = f_[op.results[0]].type.dtype;
  if (const std::string_view sign = operator_of(op.code); !sign.empty())
    return fmt::format("({} {} {})", x[0], sign, x[1]);
  const auto call = [&](std::string_view function) {
    return fmt::format("fc::{}({})", function, fmt::join(x, ", "));
  };
  if (std::ranges::count(device_functions, op.code) > 0) return call(name_of(op.code));
  switch (op.code) {
    case OpCode::tanh:
      return call(op.precise ? "precise_tanh" : "tanh");
    case OpCode::neg:
      return negated(x[0]);
    case OpCode::abs:
      return fmt::format("({0} < 0 ? {1} : {0})", x[0], negated(x[0]));
    case OpCode::cast:
      if (is_half(to)) return fmt::format("fc::round_to<{}>({})", element_type(to), x[0]);
      if (is_half(from)) return x[0];
      return fmt::format("static_cast<{}>({})", to == DType::i32 ? "int" : "float", x[0]);
    case OpCode::gather: {
      std::vector<SplitIndex> indices;
      for (const std::string& index : x) indices.push_back({index, "0"});
      return gathered(op, indices);
    }
    case OpCode::logical_not:
      return fmt::format("!{}", x[0]);
    case OpCode::div:
      // Towards minus infinity, as a shift is.
      if (const int shift = power_of_two(f_, op.operands[1]); shift >= 0 && to == DType::i32)
        return fmt::format("({} >> {})", x[0], shift);
      return call(to == DType::i32 ? "floor_div" : "divide");
    case OpCode::mod:
      if (const int shift = power_of_two(f_, op.operands[1]); shift >= 0)
        return fmt::format("({} & {})", x[0], (1 << shift) - 1);
      return call("floor_mod");
    case OpCode::where:
      if (const double* known = constant_of(f_, op.operands[0])) return *known != 0 ? x[1] : x[2];
      return fmt::format("({} ? {} : {})", x[0], x[1], x[2]);
    default:
      throw InternalError(fmt::format("{} has no expression", name_of(op.code)));
  }
}

std::string KernelPrinter::label(ValueId value) const {
  const Op* op = f_.definition(value);
  // Values of two iterations have one name in the program, and here new_max and new_max_2. One that
  // takes another's array over keeps its name: it says more.
  const std::string &stored = storage_[value.index], &name = f_[value].name;
  if (!name.empty()) return stored.starts_with(name) ? stored : name;
  if (!op) return stored.empty() ? "argument" : stored;
  if (op->code == OpCode::constant) {
    if (f_[value].type.dtype == DType::f32 && op->number == -3.4028234663852886e+38)
      return "lowest";
    return fmt::format("{}", op->number);
  }
  if (op->code == OpCode::parameter) return f_[op->parameter].name;
  if (op->code == OpCode::index || op->code == OpCode::extent || op->code == OpCode::tile_begin ||
      op->code == OpCode::tile_count)
    return fmt::format("{}({})", name_of(op->code), f_[op->axis].name);
  if (op->code == OpCode::transpose) return fmt::format("transpose({})", label(op->operands[0]));
  return storage_[value.index].empty() ? std::string(name_of(op->code)) : storage_[value.index];
}

/// What an op computes of values that have a name in the kernel.
std::string KernelPrinter::describe(const Op& op) const {
  std::string text;
  for (const ValueId operand : op.operands) {
    // What is shared would be told again at every use.
    if (text.size() > longest_remark) break;
    append(text, ", ", is_local(f_, operand) ? describe(*f_.definition(operand)) : label(operand));
  }
  if (text.size() > longest_remark) text = text.substr(0, longest_remark) + "...";
  return fmt::format("{}({})", name_of(op.code), text);
}

/// What the device calls an element in memory.
std::string_view KernelPrinter::element_type(DType dtype) {
  static constexpr std::pair<DType, std::string_view> names[] = {
      {DType::f16, "fc::f16"}, {DType::bf16, "fc::bf16"},  {DType::f32, "float"},
      {DType::f64, "double"},  {DType::i64, "fc::i64"},    {DType::i32, "int"},
      {DType::i16, "short"},   {DType::i8, "signed char"}, {DType::u8, "unsigned char"},
      {DType::i1, "bool"},
  };
  return std::ranges::find(names, dtype, &std::pair<DType, std::string_view>::first)->second;
}

/// In registers there are no 16-bit elements. Of a tile in shared memory it is the address.
std::string_view KernelPrinter::array_type(ValueId value) const {
  if (f_[value].layout.space == Space::shared) return "fc::u32";
  const DType dtype = f_[value].type.dtype;
  return element_type(is_half(dtype) ? DType::f32 : dtype);
}

/// Two partial results of a reduction as one.
std::string KernelPrinter::combined(OpCode reduction, const std::string& a, const std::string& b) {
  if (reduction == OpCode::reduce_sum) return fmt::format("{} + {}", a, b);
  return fmt::format("fc::{}({}, {})", reduction == OpCode::reduce_max ? "max" : "min", a, b);
}

}  // namespace flashcore
