// Tiles between tensors and shared memory, in chunks of 16 bytes a thread.
#include <algorithm>
#include <limits>

#include "codegen/print/kernel_printer.h"
#include "codegen/text/index_text.h"
#include "dsl/ir/type_rules.h"

namespace flashcore {

using namespace ir;

namespace {

bool is_asynchronous(const Buffer& buffer) { return buffer.transport == Transport::cp_async; }

}  // namespace

/// The stride between the `rows` rows of a tile, in 32 bits: a launch refuses one that does not
/// fit.
std::string KernelPrinter::row_stride(TensorId tensor, std::size_t dim, int rows) {
  const std::string text = fields_.stride(tensor, dim);
  if (text == "1") return text;
  std::int64_t& limit = source_.tensors[tensor.index].stride_limits[dim];
  limit = std::min<std::int64_t>(limit, std::numeric_limits<std::int32_t>::max() / rows);
  return fmt::format("static_cast<int>({})", text);
}

/// Tiles that are copied together: the positions of the rows of all of them come before the first
/// copy, so that their lookups are in flight together, and are computed once where they are equal.
void KernelPrinter::print_copies(const std::vector<const Op*>& ops) {
  std::vector<std::string> pointers;
  for (const Op* op : ops) {
    const Buffer& buffer = f_[op->buffer];
    require_alignment(op->tensor, 16);
    pointers.push_back(source_pointer(*op));
    out_.comment(fmt::format("{} <- {}{}", buffer.name, f_[op->tensor].name,
                             is_asynchronous(buffer) ? ", asynchronously" : ""));
  }
  const std::vector<ValueId>& operands = ops[0]->operands;
  const auto guard = out_.guarded(operands.size() == 3 ? scalar(operands[2]) : "");
  PositionArrays positions;
  std::vector<std::vector<RowPlace>> places(ops.size());
  for (std::size_t i = 0; i < ops.size(); ++i)
    if (ops[i]->body) places[i] = locate_rows(*ops[i], positions);
  for (std::size_t i = 0; i < ops.size(); ++i) print_copy(*ops[i], pointers[i], places[i]);
  for (const auto& [text, array] : positions) names_.release(array);
}

/// The first position along an axis of the tile that is copied.
std::string KernelPrinter::first_copied(const Op& copy, AxisId axis) {
  const bool looped = !copy.operands.empty() && f_[axis].kind == AxisKind::tiles;
  return looped ? fmt::format("{} * {}", scalar(copy.operands[0]), f_[axis].tile) : begin(axis);
}

void KernelPrinter::print_copy(const Op& op, const std::string& pointer,
                               std::vector<RowPlace> places) {
  const Buffer& buffer = f_[op.buffer];
  const std::vector<AxisId> axes = accessed_axes(f_, op);
  const Axis &rows = f_[axes[0]], &columns = f_[axes[1]];
  const std::size_t row_dim = dimension_along(op, axes[0]),
                    column_dim = dimension_along(op, axes[1]);
  const bool computed = !runs_along(f_, op, axes[0]);
  require_rows_of_chunks(f_, op,
                         column_dim + 1 == op.coordinates.size() && runs_along(f_, op, axes[1]),
                         "16-byte", chunk_elements(buffer.dtype));

  // Positions within the tile in 32 bits; only the tile's own start needs 64.
  const auto first = [&](AxisId axis) { return first_copied(op, axis); };
  std::string start = pointer;
  if (first(axes[0]) != "0" && !computed)
    start += fmt::format(" + ({}) * {}", first(axes[0]), fields_.stride(op.tensor, row_dim));
  if (first(axes[1]) != "0") start += fmt::format(" + {}", first(axes[1]));
  const std::string type = fmt::format("{}*", element_type(buffer.dtype));
  const std::string tile = constant(type + " const", buffer.name + "_source", start);
  const auto left_of = [&](AxisId axis) {
    return fmt::format("{} - ({})", extent(axis), first(axis));
  };
  std::string left, right;
  if (rows.may_overrun() && !computed)
    left = constant("int", buffer.name + "_rows", left_of(axes[0]));
  if (columns.may_overrun()) right = constant("int", buffer.name + "_columns", left_of(axes[1]));

  const std::string target = chunk_base(buffer, op.operands.empty() ? "0" : scalar(op.operands[1]));
  const std::string stride_of_row = computed ? "" : row_stride(op.tensor, row_dim, buffer.rows);
  const GlobalRows global{"const " + type, "source", tile, stride_of_row, left, std::move(places)};
  for_each_chunk(out_, names_, buffer, source_.threads, global, [&](const Chunk& at) {
    std::string bytes = "16";
    if (columns.may_overrun()) {
      const int chunk = chunk_elements(buffer.dtype);
      const bool whole_chunks = columns.fixed_length().value_or(1) % chunk == 0;
      bytes = whole_chunks ? fmt::format("{} < {} ? 16 : 0", at.column, right)
                           : fmt::format("fc::max(0, fc::min({}, {} - ({}))) * {}", chunk, right,
                                         at.column, size_of(buffer.dtype));
    }
    if (rows.may_overrun() || computed)
      bytes = fmt::format("{} ? {} : 0", at.row_exists, bytes == "16" ? bytes : "(" + bytes + ")");
    out_.line("fc::copy_{}({} + {}, {}, {});", is_asynchronous(buffer) ? "async" : "chunk", target,
              at.offset, at.pointer, bytes);
  });
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
  std::string start = fmt::format("{} + {} * {}", pointer, begin(axes[0]),
                                  fields_.stride(op.tensor, dimension_along(op, axes[0])));
  if (begin(axes[1]) != "0") start += fmt::format(" + {}", begin(axes[1]));
  out_.line("{}* const {} = {};", element_type(buffer.dtype), target, start);
  const std::string step = row_stride(op.tensor, dimension_along(op, axes[0]), buffer.rows);
  const std::string type = fmt::format("{}*", element_type(buffer.dtype));
  const std::string rows_left =
      rows.may_overrun() ? fmt::format("{} - {}", extent(axes[0]), begin(axes[0])) : "";
  const GlobalRows global{type, "out_pointer", target, step, rows_left};
  for_each_chunk(out_, names_, buffer, source_.threads, global, [&](const Chunk& at) {
    std::string inside;
    if (rows.may_overrun()) inside = at.row_exists;
    const std::string left =
        fmt::format("{} - {} - ({})", extent(axes[1]), begin(axes[1]), at.column);
    const bool whole_chunks = columns.fixed_length().value_or(1) % 8 == 0;
    if (columns.may_overrun() && whole_chunks) append(inside, " && ", left + " > 0");
    const auto guard = out_.guarded(inside);
    print_chunk_store(
        at.pointer, fmt::format("fc::load_shared_chunk({} + {})", storage_[from.index], at.offset),
        columns.may_overrun() && !whole_chunks ? left : "");
  });
}

/// Of a chunk that reaches beyond the row's end, as many elements as are `left`.
void KernelPrinter::print_chunk_store(const std::string& pointer, const std::string& chunk,
                                      const std::string& left) {
  if (left.empty())
    out_.line("fc::store_chunk({}, {});", pointer, chunk);
  else
    out_.line("fc::store_partial_chunk({}, {}, {});", pointer, chunk, left);
}

}  // namespace flashcore
