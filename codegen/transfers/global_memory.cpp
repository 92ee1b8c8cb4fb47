// Loads, stores and copies: from positions to addresses, and what happens beyond the tensor.
#include <algorithm>

#include "codegen/print/kernel_printer.h"
#include "codegen/text/index_text.h"

namespace flashcore {

using namespace ir;

namespace {

/// A 16-bit tile in accumulator fragments, of four of which each lane can get a whole chunk of a row.
/// Only beside the copy engine, whose blocks have no place for the tile in shared memory, or are to
/// keep it for the next one.
bool stores_by_quads(const Function& f, const Schedule& schedule, const Op& op) {
  const Value& value = f[op.operands[0]];
  if (schedule.copy != CopyInstruction::tma || !is_half(value.type.dtype) ||
      value.layout.axes.size() != 2 || has_computed_positions(f, op))
    return false;
  const AxisLayout &rows = value.layout.axes[0], &columns = value.layout.axes[1];
  return op.coordinates.back().axis == value.type.axes[1] && columns.slots == 2 &&
         columns.lanes == 4 && columns.warps == 1 && columns.fragments > 1 && rows.lanes == 8 &&
         rows.slots == 2;
}

}  // namespace

/// Where the block's part of a ragged axis begins and how long it is: cut to the dimension, since
/// nobody has checked the numbers. A block beyond the part leaves, all threads together, unless it has
/// other tiles.
void KernelPrinter::print_segment(const Op& op) {
  const Axis& axis = f_[op.axis];
  const std::string dimension = fields_.extent(axis.extent);
  Segment& segment = segments_[op.axis.index];
  const auto cut = [&](std::size_t bound, const std::string& least) {
    return fmt::format("fc::max({}, fc::min({}, {}))", least, scalar(op.operands[bound]),
                       dimension);
  };
  if (is_number(f_, op.operands[0], 0)) {
    segment.length = constant("int", axis.name + "_length", cut(1, "0"));
  } else {
    segment.first = constant("int", axis.name + "_first", cut(0, "0"));
    segment.length = constant("int", axis.name + "_length",
                              fmt::format("{} - {}", cut(1, segment.first), segment.first));
  }
  if (axis.kind != AxisKind::tiles && !role_ && !source_.persistent)
    out_.line("if ({} >= {}) return;", begin(op.axis), segment.length);
}

/// A pointer to the tensor at the access's scalar positions and at the parts of its ragged axes;
/// one variable for equal accesses.
std::string KernelPrinter::source_pointer(const Op& op) {
  const Tensor& tensor = f_[op.tensor];
  std::string text = fields_.tensor(op.tensor);
  for (std::size_t d = 0; d < op.coordinates.size(); ++d) {
    const Coordinate& c = op.coordinates[d];
    if (is_computed(f_, c)) continue;
    const std::string at = c.value ? scalar(c.value) : segments_[f_.origin(c.axis).index].first;
    if (!at.empty()) text += fmt::format(" + {} * {}", at, fields_.stride(op.tensor, d));
  }
  const auto found = pointers_.find(text);
  if (found != pointers_.end()) return found->second;
  const std::string name = names_.unique(tensor.name + "_at");
  out_.line("{}{}* const {} = {};", tensor.output ? "" : "const ", element_type(tensor.dtype), name,
            text);
  // Inside a loop the variable ends with the iteration.
  if (block_ == f_.body || !block_) pointers_[text] = name;
  return name;
}

void KernelPrinter::print_quad_store(const Op& op) {
  const ValueId value = op.operands[0];
  const auto& axes = f_[value].type.axes;
  const AxisLayout &rows = f_[value].layout.axes[0], &columns = f_[value].layout.axes[1];
  const Axis& column_axis = f_[axes[1]];
  require_alignment(op.tensor, 16);
  const std::string pointer = source_pointer(op);
  const std::string type{element_type(f_[value].type.dtype)};
  out_.comment(fmt::format("store {} = {}, each lane 8 columns", f_[op.tensor].name, label(value)));
  const auto down = out_.repeated("i", rows.fragments), pair = out_.unrolled("r", 2);
  const std::string i = rows.fragments > 1 ? "i" : "0";
  out_.line("const int row = {} + {}{} + r * 8;", begin(axes[0]), lane_offset(axes[0], rows),
            rows.fragments > 1 ? " + i * 16" : "");
  out_.line("{}* const line = {} + row * {} + {};", type, pointer,
            fields_.stride(op.tensor, dimension_along(op, axes[0])), begin(axes[1]));
  // Where fragments are left of a group of four, some lanes get no chunk of them.
  const bool whole_groups = columns.fragments % 4 == 0;
  const auto across = out_.unrolled("j", (columns.fragments + 3) / 4);
  out_.line("fc::u32 word[4]{};", whole_groups ? "" : "{}");
  {
    auto pack = out_.unrolled("n", 4, false);
    const auto held =
        out_.guarded(whole_groups ? "" : fmt::format("j * 4 + n < {}", columns.fragments));
    out_.line(
        "word[n] = fc::pack<{0}>({1}[{2}][j * 4 + n][2 * r], {1}[{2}][j * 4 + n][2 * r + 1]);",
        type, storage_[value.index], i);
  }
  out_.line("fc::transpose_quad(word, lane);");
  out_.line("const int column = j * 32 + lane % 4 * 8;");
  std::string inside;
  if (f_[axes[0]].may_overrun()) inside = lies_on(axes[0], "row");
  if (!whole_groups) append(inside, " && ", fmt::format("column < {}", columns.fragments * 8));
  const std::string left = fmt::format("{} - {} - column", extent(axes[1]), begin(axes[1]));
  const bool whole_chunks = column_axis.fixed_length().value_or(1) % 8 == 0;
  if (column_axis.may_overrun()) append(inside, " && ", left + " > 0");
  const auto guard = out_.guarded(inside);
  print_chunk_store("line + column", "fc::chunk{{word[0], word[1], word[2], word[3]}}",
                    column_axis.may_overrun() && !whole_chunks ? left : "");
}

void KernelPrinter::print_load(const Op& op) {
  const ValueId value = op.results[0];
  if (f_[value].type.is_scalar()) {
    storage_[value.index] = names_.unique(label(value));
    out_.line("{} {}[1];", array_type(value), storage_[value.index]);
    out_.line("fc::load_global<1>({}, {});", storage_[value.index], source_pointer(op));
    storage_[value.index] += "[0]";
    return;
  }
  out_.comment(fmt::format("{} = load {}", label(value), f_[op.tensor].name));
  declare(value);
  print_access(op);
}

void KernelPrinter::print_store(const Op& op) {
  const ValueId value = op.operands[0];
  if (f_[value].type.is_scalar()) {
    const std::string pointer = source_pointer(op), name = names_.unique("element");
    out_.comment(fmt::format("store {} = {}", f_[op.tensor].name, label(value)));
    out_.line("const {} {}[1] = {{{}}};", array_type(value), name, scalar(value));
    out_.line("if (thread == 0) fc::store_global<1>({}, {});", pointer, name);
    return;
  }
  if (f_[value].layout.space == Space::shared)
    schedule_.copy == CopyInstruction::tma ? print_bulk_store(op) : print_staged_store(op);
  else if (stores_by_quads(f_, schedule_, op))
    print_quad_store(op);
  else
    print_access(op);
}

/// Registers to or from a tensor. Each element is moved by one thread; neighbouring slots move
/// together where a constant length promises that they exist and are aligned.
void KernelPrinter::print_access(const Op& op) {
  const bool is_store = op.code == OpCode::store;
  const ValueId tile = is_store ? op.operands[0] : op.results[0];
  const Shape shape = shape_of(tile);
  const std::string pointer = source_pointer(op);
  if (is_store) out_.comment(fmt::format("store {} = {}", f_[op.tensor].name, label(tile)));

  const auto one = out_.guarded(is_store ? representative(shape) : "");
  const AxisLayout& last = shape.layouts.back();
  const Axis& last_axis = f_[shape.axes.back()];
  const bool contiguous =
      op.coordinates.back().axis == shape.axes.back() && runs_along(f_, op, shape.axes.back());
  const bool vector = contiguous && last.slots > 1 && last.slot_stride == 1 &&
                      last_axis.fixed_length().value_or(1) % last.slots == 0;
  const int count = vector ? last.slots : 1;
  Shape walked = shape;
  if (vector) {
    walked.layouts.back().slots = 1;
    require_alignment(op.tensor, count * size_of(f_[op.tensor].dtype));
  }
  Loops cursor = open_loops(walked);
  cursor.layouts = shape.layouts;  // positions are those of the real layout

  std::string address = pointer, inside;
  for (std::size_t k = 0; k < shape.axes.size(); ++k) {
    const std::string at = position(shape.axes[k], shape.layouts[k], cursor);
    if (f_[shape.axes[k]].may_overrun()) append(inside, " && ", lies_on(shape.axes[k], at));
    for (std::size_t d = 0; d < op.coordinates.size(); ++d) {
      const Coordinate& c = op.coordinates[d];
      if (axis_of(f_, c) != shape.axes[k]) continue;
      const std::string along = is_computed(f_, c) ? element(c.value, cursor) : at;
      address += " + " + times("(" + along + ")", fields_.stride(op.tensor, d));
      if (is_computed(f_, c))
        append(inside, " && ",
               fmt::format("fc::within({}, {})", along, fields_.extent(f_[op.tensor].dims[d])));
    }
  }
  // The element at the cursor, counted in the slots of the whole fragment.
  const std::string slot = times(cursor.element, count);
  std::string register_address = storage_[tile.index];
  for (const std::string& fragment : cursor.fragments) register_address += "[" + fragment + "]";
  register_address = fmt::format("&{}[{}]", register_address, slot);

  if (is_store) {
    const auto guard = out_.guarded(inside);
    out_.line("fc::{}<{}>({}, {});",
              op.accumulation == Accumulation::none        ? "store_global"
              : op.accumulation == Accumulation::any_order ? "add_global"
                                                           : "add_in_turn",
              count, address, register_address);
    return;
  }
  {
    const auto guard = out_.guarded(inside);
    out_.line("fc::load_global<{}>({}, {});", count, register_address, address);
  }
  if (inside.empty()) return;
  auto outside = out_.block("else");
  if (count == 1) return out_.line("{} = 0;", register_address.substr(1));
  for (int n = 0; n < count; ++n) out_.line("({})[{}] = 0;", register_address, n);
}

/// A condition that picks one of the threads that hold the same elements; empty if all differ.
std::string KernelPrinter::representative(const Shape& shape) const {
  int lane_bits = 31, warps = schedule_.consumer_threads() / 32, warp_low = warps, warp_high = 1;
  for (const AxisLayout& layout : shape.layouts) {
    lane_bits &= ~((layout.lanes - 1) * layout.lane_divisor);
    if (layout.warps > 1) {
      warp_low = std::min(warp_low, layout.warp_divisor);
      warp_high = std::max(warp_high, layout.warp_divisor * layout.warps);
    }
  }
  std::string condition;
  const auto add = [&](const std::string& term) { append(condition, " && ", term); };
  if (lane_bits) add(fmt::format("(lane & {}) == 0", lane_bits));
  if (warp_high == 1) {
    if (warps > 1) add("warp == 0");
  } else {
    if (warp_low > 1) add(fmt::format("warp % {} == 0", warp_low));
    if (warp_high < warps) add(fmt::format("warp < {}", warp_high));
  }
  return condition;
}

bool KernelPrinter::is_bulk_copy(const Op& op) const {
  return op.code == OpCode::issue && f_[op.buffer].transport == Transport::tma;
}

/// Pointers that a loop's accesses start from are computed before it.
void KernelPrinter::prepare_sources(BlockId block) {
  for_each_op(f_, block, [&](const Op& op, BlockId) {
    if (op.coordinates.empty() || is_bulk_copy(op)) return;
    for (const Coordinate& c : op.coordinates) {
      if (!c.value || is_computed(f_, c)) continue;
      const Op* source = definition_as(f_, c.value, OpCode::index);
      const bool known = source ? begins_.contains(f_.origin(source->axis).index)
                                : is_source(f_, c.value) || !storage_[c.value.index].empty();
      if (!known) return;  // a tile of the region says where that is
    }
    source_pointer(op);
  });
}

}  // namespace flashcore
