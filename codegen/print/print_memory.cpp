// Loads, stores and copies: from positions to addresses, and what happens beyond the tensor.
#include <algorithm>
#include <limits>

#include "codegen/passes/rewrite.h"
#include "codegen/print/kernel_printer.h"
#include "dsl/error.h"

namespace flashcore {

using namespace ir;

namespace {

/// The tensor dimension an axis of the tile runs along.
std::size_t dim_of(const Op& op, AxisId axis) {
  for (std::size_t d = 0; d < op.coordinates.size(); ++d)
    if (op.coordinates[d].axis == axis) return d;
  throw InternalError("an access without the axis of its tile");
}

/// Elements in the 16 bytes that a thread copies at a time.
int chunk_elements(DType dtype) { return 16 / size_of(dtype); }

}  // namespace

/// Where the block's part of a ragged axis begins and how long it is: cut to the dimension, since
/// nobody has checked the numbers. A block beyond the part leaves, all threads together.
void KernelPrinter::print_segment(const Op& op) {
  const Axis& axis = f_[op.axis];
  const std::string dimension = extent_text(axis.extent);
  Segment& segment = segments_[op.axis.index];
  segment.length = names_.unique(axis.name + "_length");
  const double* zero = constant_of(f_, op.operands[0]);
  if (zero && *zero == 0) {
    out_.line("const int {} = fc::max(0, fc::min({}, {}));", segment.length, scalar(op.operands[1]),
              dimension);
  } else {
    segment.first = names_.unique(axis.name + "_first");
    out_.line("const int {} = fc::max(0, fc::min({}, {}));", segment.first, scalar(op.operands[0]),
              dimension);
    out_.line("const int {0} = fc::max({1}, fc::min({2}, {3})) - {1};", segment.length,
              segment.first, scalar(op.operands[1]), dimension);
  }
  if (axis.kind == AxisKind::parallel_tiles)
    out_.line("if ({} >= {}) return;", begin(op.axis), segment.length);
}

/// A pointer to the tensor at the access's scalar positions and at the parts of its ragged axes;
/// one variable for equal accesses.
std::string KernelPrinter::source_pointer(const Op& op) {
  const Tensor& tensor = f_[op.tensor];
  std::string text = "p." + fields_.tensor(op.tensor);
  for (std::size_t d = 0; d < op.coordinates.size(); ++d)
    if (op.coordinates[d].value)
      text += fmt::format(" + {} * {}", scalar(op.coordinates[d].value), stride(op.tensor, d));
    else if (const Segment& segment = segments_[f_.origin(op.coordinates[d].axis).index];
             !segment.first.empty())
      text += fmt::format(" + {} * {}", segment.first, stride(op.tensor, d));
  const auto found = pointers_.find(text);
  if (found != pointers_.end()) return found->second;
  const std::string name = names_.unique(tensor.name + "_at");
  out_.line("{}{}* const {} = {};", tensor.output ? "" : "const ", element_type(tensor.dtype), name,
            text);
  // Inside a loop the variable ends with the iteration.
  if (block_ == f_.body || !block_) pointers_[text] = name;
  return name;
}

std::string_view KernelPrinter::element_type(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return "fc::f16";
    case DType::bf16:
      return "fc::bf16";
    case DType::f32:
      return "float";
    default:
      return "int";
  }
}

std::string KernelPrinter::chunk_base(const Buffer& buffer, const std::string& slot) const {
  std::string text = "shared";
  if (buffer.offset) text += fmt::format(" + {}", buffer.offset);
  if (buffer.stages > 1) text += fmt::format(" + {} * {}", slot, buffer.slot_stride());
  return text;
}

/// Loops over the thread's chunks of a tile in global memory. Neighbouring threads take
/// neighbouring chunks of one panel's row, so that they write whole lines. The pointer `walker`
/// steps down the rows: with one address and one step alive, nothing but them is worth keeping in
/// registers over a loop. `body` sees `row`, `column`, `i` and, past the first, `panel`.
template <class Body>
void KernelPrinter::for_each_chunk(const Buffer& buffer, const std::string& pointer_type,
                                   const std::string& walker, const std::string& start,
                                   const std::string& row_stride, const std::string& rows_left,
                                   Body body) {
  for (const ChunkLoop& loop : chunk_loops(buffer)) {
    const int size = size_of(buffer.dtype), chunk = chunk_elements(buffer.dtype);
    const int chunks = loop.width / chunk, rows = source_.threads / chunks;
    const int steps = (buffer.rows + rows - 1) / rows;
    auto scope = out_.block("");
    const std::string first = loop.first_column ? fmt::format(" + {}", loop.first_column) : "";
    out_.line("const int row = thread / {0}, column = thread % {0} * {1};", chunks, chunk);
    out_.line("{} {} = {} + row * {} + column{};", pointer_type, walker, start, row_stride, first);
    const std::string left = names_.unique("rows_left");
    if (!rows_left.empty()) out_.line("const int {} = {} - row;", left, rows_left);
    Writer::Scopes guard;
    if (rows > buffer.rows) guard.push_back(out_.block("if (row < {})", buffer.rows));
    auto down = out_.unrolled("i", steps);
    const bool ragged = rows < buffer.rows && buffer.rows % rows != 0;
    {
      Writer::Scopes inner;
      if (ragged) inner.push_back(out_.block("if (row + i * {} < {})", rows, buffer.rows));
      if (loop.panels > 1) inner.push_back(out_.unrolled("panel", loop.panels));
      const std::string panel = loop.panels > 1 ? fmt::format("panel * {}", loop.width)
                                                : std::to_string(loop.first_column);
      const std::string across = loop.panels > 1 ? " + " + panel : "";
      // The swizzle counts columns of 16 bits. Eight rows down it repeats, and the offset changes
      // by a constant.
      const std::string halves = size == 2 ? "" : fmt::format(" * {}", size / 2);
      const bool repeats = rows % 8 == 0 && steps > 1;
      std::string offset = fmt::format(
          "fc::panel_chunk_offset<{}, {}>({}, column{}, {}{})", buffer.rows,
          buffer.columns * size / 2,
          repeats || steps == 1 ? "row" : fmt::format("row + i * {}", rows), halves, panel, halves);
      if (repeats) offset += fmt::format(" + i * {}", rows * loop.width * size);
      if (buffer.pitch) {
        offset = fmt::format("(row * {} + column{}) * {}", buffer.pitch,
                             loop.panels > 1 ? across : first, size);
        if (steps > 1) offset += fmt::format(" + i * {}", rows * buffer.pitch * size);
      }
      body(Chunk{steps > 1 ? fmt::format("i * {} < {}", rows, left) : left + " > 0",
                 "column" + first + across, walker + across, offset});
    }
    if (steps > 1) out_.line("{} += {} * {};", walker, rows, row_stride);
    names_.release(left);
  }
}

/// The stride between the `rows` rows of a tile, in 32 bits: a launch refuses one that does not
/// fit.
std::string KernelPrinter::row_stride(TensorId tensor, std::size_t dim, int rows) {
  const std::string text = stride(tensor, dim);
  if (text == "1") return text;
  std::int64_t& limit = source_.tensors[tensor.index].stride_limits[dim];
  limit = std::min<std::int64_t>(limit, std::numeric_limits<std::int32_t>::max() / rows);
  return fmt::format("static_cast<int>({})", text);
}

void KernelPrinter::require_alignment(TensorId tensor, int bytes) {
  int& alignment = source_.tensors[tensor.index].alignment;
  alignment = std::max(alignment, bytes);
}

void KernelPrinter::print_copy(const Op& op) {
  const Buffer& buffer = f_[op.buffer];
  std::vector<AxisId> axes;
  for (const Coordinate& c : op.coordinates)
    if (c.axis) axes.push_back(c.axis);
  const Axis &rows = f_[axes[0]], &columns = f_[axes[1]];
  const std::size_t row_dim = dim_of(op, axes[0]), column_dim = dim_of(op, axes[1]);
  if (column_dim + 1 != op.coordinates.size())
    throw SpecError(
        {fmt::format("a product of {} along dimension {}", f_[op.tensor].name, column_dim),
         "16-byte copies need neighbouring elements in the last axis of the tile",
         "index the last dimension with the tile's last axis, and transpose the tile", op.where});
  if (columns.ragged)
    throw SpecError(
        {fmt::format("a product of {} along the ragged axis {}", f_[op.tensor].name, columns.name),
         fmt::format("16-byte copies need rows that begin at a multiple of {} elements",
                     chunk_elements(buffer.dtype)),
         "index the last dimension with an axis that is not ragged", op.where});
  require_alignment(op.tensor, 16);

  const bool in_loop = !op.operands.empty();
  const std::string pointer = source_pointer(op);
  std::string comment = fmt::format("{} <- {}", buffer.name, f_[op.tensor].name);
  const bool async = op.code == OpCode::copy_async;
  out_.comment(comment + (async ? ", asynchronously" : ""));
  Writer::Scopes guard;
  if (op.operands.size() == 3) guard.push_back(out_.block("if ({})", scalar(op.operands[2])));

  // Positions within the tile in 32 bits; only the tile's own start needs 64.
  const auto first = [&](AxisId axis) {
    const bool looped = in_loop && f_[axis].kind == AxisKind::tiles;
    return looped ? fmt::format("{} * {}", scalar(op.operands[0]), f_[axis].tile) : begin(axis);
  };
  const std::string tile = names_.unique(buffer.name + "_source");
  std::string start = pointer;
  if (first(axes[0]) != "0")
    start += fmt::format(" + ({}) * {}", first(axes[0]), stride(op.tensor, row_dim));
  if (first(axes[1]) != "0") start += fmt::format(" + {}", first(axes[1]));
  out_.line("const {}* const {} = {};", element_type(buffer.dtype), tile, start);
  const std::string left = names_.unique(buffer.name + "_rows");
  if (rows.may_overrun())
    out_.line("const int {} = {} - ({});", left, extent(axes[0]), first(axes[0]));
  const std::string right = names_.unique(buffer.name + "_columns");
  if (columns.may_overrun())
    out_.line("const int {} = {} - ({});", right, extent(axes[1]), first(axes[1]));

  const std::string target = chunk_base(buffer, in_loop ? scalar(op.operands[1]) : "0");
  const std::string type = fmt::format("const {}*", element_type(buffer.dtype));
  const std::string step = row_stride(op.tensor, row_dim, buffer.rows);
  for_each_chunk(
      buffer, type, "source", tile, step, rows.may_overrun() ? left : "", [&](const Chunk& at) {
        std::string bytes = "16";
        if (columns.may_overrun()) {
          const int chunk = chunk_elements(buffer.dtype);
          const bool whole_chunks = columns.fixed_length().value_or(1) % chunk == 0;
          bytes = whole_chunks ? fmt::format("{} < {} ? 16 : 0", at.column, right)
                               : fmt::format("fc::max(0, fc::min({}, {} - ({}))) * {}", chunk,
                                             right, at.column, size_of(buffer.dtype));
        }
        if (rows.may_overrun()) {
          if (bytes == "16")
            bytes = fmt::format("{} ? 16 : 0", at.row_exists);
          else
            bytes = fmt::format("{} ? ({}) : 0", at.row_exists, bytes);
        }
        out_.line("fc::copy_{}({} + {}, {}, {});", async ? "async" : "chunk", target, at.offset,
                  at.pointer, bytes);
      });
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
  if (f_[op.operands[0]].layout.space == Space::shared)
    schedule_.copy == CopyInstruction::tma ? print_bulk_store(op) : print_staged_store(op);
  else if (stores_by_quads(op))
    print_quad_store(op);
  else
    print_access(op, op.operands[0], true);
}

/// A 16-bit tile in accumulator fragments, four by four: each lane can get a whole chunk of a row.
/// Only beside the copy engine, whose blocks have no place for the tile in shared memory, or are to
/// keep it for the next one.
bool KernelPrinter::stores_by_quads(const Op& op) const {
  const Value& value = f_[op.operands[0]];
  if (schedule_.copy != CopyInstruction::tma || !is_half(value.type.dtype) ||
      value.layout.axes.size() != 2)
    return false;
  const AxisLayout &rows = value.layout.axes[0], &columns = value.layout.axes[1];
  return op.coordinates.back().axis == value.type.axes[1] && columns.slots == 2 &&
         columns.lanes == 4 && columns.warps == 1 && columns.fragments % 4 == 0 &&
         rows.lanes == 8 && rows.slots == 2;
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
  Writer::Scopes scopes;
  if (rows.fragments > 1) scopes.push_back(out_.unrolled("i", rows.fragments));
  scopes.push_back(out_.unrolled("r", 2));
  const std::string i = rows.fragments > 1 ? "i" : "0";
  const std::string row =
      fmt::format("{} + {}{} + r * 8", begin(axes[0]), lane_offset(axes[0], rows),
                  rows.fragments > 1 ? " + i * 16" : "");
  out_.line("const int row = {};", row);
  out_.line("{}* const line = {} + row * {} + {};", type, pointer,
            stride(op.tensor, dim_of(op, axes[0])), begin(axes[1]));
  scopes.push_back(out_.unrolled("j", columns.fragments / 4));
  out_.line("fc::u32 word[4];");
  {
    auto pack = out_.unrolled("n", 4, false);
    out_.line(
        "word[n] = fc::pack<{0}>({1}[{2}][j * 4 + n][2 * r], {1}[{2}][j * 4 + n][2 * r + 1]);",
        type, storage_[value.index], i);
  }
  out_.line("fc::transpose_quad(word, lane);");
  out_.line("const int column = j * 32 + lane % 4 * 8;");
  std::string inside;
  if (f_[axes[0]].may_overrun()) inside = fmt::format("row < {}", extent(axes[0]));
  const std::string left = fmt::format("{} - {} - column", extent(axes[1]), begin(axes[1]));
  const bool whole_chunks = column_axis.fixed_length().value_or(1) % 8 == 0;
  if (column_axis.may_overrun())
    inside += fmt::format("{}{} > 0", inside.empty() ? "" : " && ", left);
  Writer::Scopes guard;
  if (!inside.empty()) guard.push_back(out_.block("if ({})", inside));
  const std::string chunk = "fc::chunk{{word[0], word[1], word[2], word[3]}}";
  if (column_axis.may_overrun() && !whole_chunks)
    out_.line("fc::store_partial_chunk(line + column, {}, {});", chunk, left);
  else
    out_.line("fc::store_chunk(line + column, {});", chunk);
}

void KernelPrinter::print_staged_store(const Op& op) {
  const ValueId from = op.operands[0];
  const Op& staging = *f_.definition(from);
  const Buffer& buffer = f_[staging.buffer];
  const auto& axes = f_[from].type.axes;
  const Axis &rows = f_[axes[0]], &columns = f_[axes[1]];
  require_alignment(op.tensor, 16);
  const std::string pointer = source_pointer(op);
  out_.comment(fmt::format("store {}", f_[op.tensor].name));
  const std::string target = names_.unique(f_[op.tensor].name + "_target");
  std::string start =
      fmt::format("{} + {} * {}", pointer, begin(axes[0]), stride(op.tensor, dim_of(op, axes[0])));
  if (begin(axes[1]) != "0") start += fmt::format(" + {}", begin(axes[1]));
  out_.line("{}* const {} = {};", element_type(buffer.dtype), target, start);
  const std::string step = row_stride(op.tensor, dim_of(op, axes[0]), buffer.rows);
  const std::string type = fmt::format("{}*", element_type(buffer.dtype));
  const std::string rows_left =
      rows.may_overrun() ? fmt::format("{} - {}", extent(axes[0]), begin(axes[0])) : "";
  for_each_chunk(buffer, type, "out_pointer", target, step, rows_left, [&](const Chunk& at) {
    std::string inside;
    if (rows.may_overrun()) inside = at.row_exists;
    const std::string left =
        fmt::format("{} - {} - ({})", extent(axes[1]), begin(axes[1]), at.column);
    const bool whole_chunks = columns.fixed_length().value_or(1) % 8 == 0;
    if (columns.may_overrun() && whole_chunks)
      inside += fmt::format("{}{} > 0", inside.empty() ? "" : " && ", left);
    Writer::Scopes guard;
    if (!inside.empty()) guard.push_back(out_.block("if ({})", inside));
    const std::string chunk =
        fmt::format("fc::load_shared_chunk({} + {})", storage_[from.index], at.offset);
    if (columns.may_overrun() && !whole_chunks)
      out_.line("fc::store_partial_chunk({}, {}, {});", at.pointer, chunk, left);
    else
      out_.line("fc::store_chunk({}, {});", at.pointer, chunk);
  });
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
  print_access(op, value, false);
}

/// Registers to or from a tensor. Each element is moved by one thread; neighbouring slots move
/// together where a constant length promises that they exist and are aligned.
void KernelPrinter::print_access(const Op& op, ValueId tile, bool is_store) {
  const Shape shape = shape_of(tile);
  const std::string pointer = source_pointer(op);
  if (is_store) out_.comment(fmt::format("store {} = {}", f_[op.tensor].name, label(tile)));

  Writer::Scopes scopes;
  if (is_store) {
    const std::string one = representative(shape);
    if (!one.empty()) scopes.push_back(out_.block("if ({})", one));
  }
  const AxisLayout& last = shape.layouts.back();
  const Axis& last_axis = f_[shape.axes.back()];
  const bool contiguous = dim_of(op, shape.axes.back()) + 1 == op.coordinates.size();
  const bool vector = contiguous && last.slots > 1 && last.slot_stride == 1 &&
                      last_axis.fixed_length().value_or(1) % last.slots == 0;
  const int count = vector ? last.slots : 1;
  Shape walked = shape;
  if (vector) {
    walked.layouts.back().slots = 1;
    require_alignment(op.tensor, count * size_of(f_[op.tensor].dtype));
  }
  Cursor cursor = open_loops(walked, scopes);
  cursor.layouts = shape.layouts;  // positions are those of the real layout

  std::string address = pointer, inside;
  for (std::size_t k = 0; k < shape.axes.size(); ++k) {
    const std::string at = position(shape.axes[k], shape.layouts[k], cursor);
    const std::string step = stride(op.tensor, dim_of(op, shape.axes[k]));
    address += step == "1" ? fmt::format(" + ({})", at) : fmt::format(" + ({}) * {}", at, step);
    if (f_[shape.axes[k]].may_overrun())
      inside += fmt::format("{}{} < {}", inside.empty() ? "" : " && ", at, extent(shape.axes[k]));
  }
  // The element at the cursor, counted in the slots of the whole fragment.
  std::string slot = cursor.element;
  if (vector) slot = slot == "0" ? "0" : fmt::format("{} * {}", slot, count);
  std::string register_address = storage_[tile.index];
  for (const std::string& fragment : cursor.fragments) register_address += "[" + fragment + "]";
  register_address = fmt::format("&{}[{}]", register_address, slot);

  if (is_store) {
    Writer::Scopes guard;
    if (!inside.empty()) guard.push_back(out_.block("if ({})", inside));
    out_.line("fc::store_global<{}>({}, {});", count, address, register_address);
    return;
  }
  if (inside.empty()) {
    out_.line("fc::load_global<{}>({}, {});", count, register_address, address);
    return;
  }
  {
    auto guard = out_.block("if ({})", inside);
    out_.line("fc::load_global<{}>({}, {});", count, register_address, address);
  }
  auto outside = out_.block("else");
  if (count == 1) {
    out_.line("{} = 0;", register_address.substr(1));
    return;
  }
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
  const auto add = [&](std::string term) {
    condition += (condition.empty() ? "" : " && ") + std::move(term);
  };
  if (lane_bits) add(fmt::format("(lane & {}) == 0", lane_bits));
  if (warp_high == 1) {
    if (warps > 1) add("warp == 0");
  } else {
    if (warp_low > 1) add(fmt::format("warp % {} == 0", warp_low));
    if (warp_high < warps) add(fmt::format("warp < {}", warp_high));
  }
  return condition;
}

}  // namespace flashcore
