// The arrays of register tiles, and the unrolled loops over their elements.

#include "codegen/analysis/register_interference.h"
#include "codegen/print/kernel_printer.h"
#include "codegen/text/index_text.h"
#include "dsl/error.h"

namespace flashcore {

using namespace ir;

KernelPrinter::Shape KernelPrinter::shape_of(ValueId value) const {
  Shape shape{f_[value].type.axes, f_[value].layout.axes};
  // A block of fragments is one thing.
  if (f_[value].layout.space == Space::opaque)
    for (AxisLayout& layout : shape.layouts) layout.slots = 1;
  // A left operand holds four packed pairs of two neighbouring fragments.
  if (f_[value].layout.space == Space::operand) {
    shape.layouts[0].slots = 1;
    shape.layouts[1].fragments /= 2;
    shape.layouts[1].slots = 4;
  }
  return shape;
}

/// Gives a value its array, and declares that where it is the first to lie in it.
void KernelPrinter::declare(ValueId value, bool zero, const std::string& otherwise) {
  if (!f_[value].array) throw InternalError(fmt::format("no array for tile {}", label(value)));
  std::string& name = arrays_[f_[value].array];
  storage_[value.index] = name;
  if (!name.empty()) {
    if (!zero) return;
    const Loops cursor = open_loops(shape_of(value));
    return out_.line("{} = {};", element(value, cursor), number(0, f_[value].type.dtype));
  }
  const Shape shape = shape_of(value);
  storage_[value.index] = name = names_.unique(f_[value].name.empty() ? otherwise : f_[value].name);
  const char* const start = zero ? " = {}" : "";
  std::string dims;
  int slots = 1;
  for (const AxisLayout& layout : shape.layouts) {
    dims += fmt::format("[{}]", layout.fragments);
    slots *= layout.slots;
  }
  switch (f_[value].layout.space) {
    case Space::opaque:
      return out_.line("fc::sum_block {}{}{};", name, dims, start);
    case Space::operand:
      return out_.line("fc::u32 {}{}[4];", name, dims);
    default:
      if (is_condition_tile(f_, value))
        return out_.line("fc::condition_tile<{}, {}, {}> {};", shape.layouts[0].fragments,
                         shape.layouts[1].fragments, slots, name);
      return out_.line("{} {}{}[{}]{};", array_type(value), name, dims, slots, start);
  }
}

/// Gives a value its array, and puts what another holds into it unless they share it.
void KernelPrinter::become(ValueId value, ValueId from) {
  if (definition_as(f_, from, OpCode::undefined)) return declare(value);
  const bool zero = is_number(f_, from, 0) && f_[value].layout.space != Space::operand;
  declare(value, zero);
  if (zero || (!is_source(f_, from) && storage_[from.index] == storage_[value.index])) return;
  const Loops cursor = open_loops(shape_of(value));
  out_.line("{} = {};", element(value, cursor), element(from, cursor));
}

KernelPrinter::Loops KernelPrinter::open_loops(const Shape& shape, bool braces) {
  static constexpr const char* fragment_names[] = {"i", "j"};
  Loops loops{{shape, {}, {}, {}}, {}};
  int slots = 1;
  for (std::size_t k = 0; k < shape.axes.size(); ++k) {
    slots *= shape.layouts[k].slots;
    const int count = shape.layouts[k].fragments;
    loops.scopes.push_back(out_.repeated(fragment_names[k], count, braces));
    loops.fragments.emplace_back(count == 1 ? "0" : fragment_names[k]);
  }
  loops.scopes.push_back(out_.repeated("e", slots, braces));
  loops.element = slots > 1 ? "e" : "0";
  if (shape.axes.size() < 2) {
    loops.slots = {loops.element};
  } else {
    const int rows = shape.layouts[0].slots, columns = shape.layouts[1].slots;
    loops.slots = {rows == 1      ? "0"
                   : columns == 1 ? "e"
                                  : fmt::format("(e / {})", columns),
                   columns == 1 ? "0"
                   : rows == 1  ? "e"
                                : fmt::format("(e % {})", columns)};
  }
  return loops;
}

namespace {

std::string lane_term(const AxisLayout& layout) {
  std::string lane = "lane";
  if (layout.lane_divisor > 1) lane += fmt::format(" / {}", layout.lane_divisor);
  if (layout.lane_divisor * layout.lanes < 32) lane += fmt::format(" % {}", layout.lanes);
  return layout.lane_stride > 1 ? fmt::format("{} * {}", lane, layout.lane_stride) : lane;
}

}  // namespace

/// The part of a position that depends on the thread alone, once for every layout of every axis.
void KernelPrinter::declare_lane_offsets() {
  for_each_op(f_, f_.body, [&](const Op& op, BlockId) {
    for (ValueId result : op.results) {
      const Value& v = f_[result];
      if (v.layout.space != Space::registers) continue;
      for (std::size_t k = 0; k < v.type.axes.size(); ++k) {
        const LaneAxis key(v.type.axes[k], v.layout.axes[k]);
        if (!lane_offset_of(key)) lane_offsets_.push_back({key, {}});
      }
    }
  });
  for (auto& [key, name] : lane_offsets_) {
    const AxisLayout& layout = key.second;
    std::string offset = warp_base(layout);
    if (layout.lanes > 1) offset = plus(offset, lane_term(layout));
    name = constant("int", f_[key.first].name + "_lane", offset);
  }
}

const std::string* KernelPrinter::lane_offset_of(const LaneAxis& wanted) const {
  for (const auto& [key, name] : lane_offsets_)
    if (key == wanted) return &name;
  return nullptr;
}

std::string KernelPrinter::lane_offset(AxisId axis, const AxisLayout& layout) const {
  if (const std::string* name = lane_offset_of({axis, layout})) return *name;
  throw InternalError(fmt::format("no layout for {} in shared memory", f_[axis].name));
}

}  // namespace flashcore
