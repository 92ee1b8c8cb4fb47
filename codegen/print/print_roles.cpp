// Producer and consumers, how they meet, and what the copy engine moves.
#include <algorithm>

#include "codegen/passes/rewrite.h"
#include "codegen/print/kernel_printer.h"
#include "codegen/text/index_text.h"
#include "dsl/error.h"

namespace flashcore {

using namespace ir;

namespace {

/// The tensor dimension that the rows of a tile run along; of a vector, which is one row, any but its
/// own.
std::size_t row_dimension(const Op& access) {
  for (std::size_t d = 0; d + 1 < access.coordinates.size(); ++d)
    if (access.coordinates[d].axis) return d;
  return 0;
}

TensorMapArgument box_of(const Op& copy, int rows, int width) {
  return {static_cast<int>(copy.tensor.index), static_cast<int>(row_dimension(copy)), rows, width};
}

/// What the region of an issue yields for a computed coordinate.
ValueId first_of_box(const Function& f, const Op& issue, std::size_t dim) {
  const auto before = issue.coordinates.begin();
  const auto number = std::count_if(before, before + static_cast<std::ptrdiff_t>(dim),
                                    [](const Coordinate& c) { return c.computed; });
  return f[f[issue.body].ops.back()].operands[static_cast<std::size_t>(number)];
}

}  // namespace

// ---- tensor maps

/// The maps of all copies of whole tiles: one for every width of panel.
void KernelPrinter::collect_tensor_maps() {
  for_each_op(f_, f_.body, [&](const Op& op, BlockId) {
    const bool stores = op.code == OpCode::store &&
                        f_[op.operands[0]].layout.space == Space::shared &&
                        schedule_.copy == CopyInstruction::tma;
    if (!is_bulk_copy(op) && !stores) return;
    const Buffer& buffer = f_[stores ? f_.definition(op.operands[0])->buffer : op.buffer];
    if (!buffer.is_vector())
      require_rows_of_chunks(f_, op, bool(op.coordinates.back().axis), "bulk", 8);
    require_alignment(op.tensor, 16);
    for (const ChunkLoop& panels : chunk_loops(buffer)) {
      const TensorMapArgument map =
          box_of(op, stores ? 64 : buffer.rows / buffer.blocks, panels.width);
      if (std::ranges::count(source_.tensor_maps, map) == 0) source_.tensor_maps.push_back(map);
    }
  });
}

std::string KernelPrinter::map_of(const Op& op, int rows, int width) const {
  const auto found = std::ranges::find(source_.tensor_maps, box_of(op, rows, width));
  if (found == source_.tensor_maps.end()) throw InternalError("no tensor map for a copy");
  return fields_.map(static_cast<std::size_t>(found - source_.tensor_maps.begin()));
}

/// The coordinates of a box, the dense dimension first: `row` and `column` are added to the tile's
/// own.
std::string KernelPrinter::box_coordinates(const Op& op, const std::string& row,
                                           const std::string& column) {
  std::string text;
  const std::size_t row_dim = row_dimension(op);
  for (std::size_t d = op.coordinates.size(); d-- > 0;) {
    const Coordinate& c = op.coordinates[d];
    std::string at = c.computed ? scalar(first_of_box(f_, op, d))
                     : c.value  ? scalar(c.value)
                                : begin(c.axis);
    if (c.axis && !c.computed) at = plus(at, segments_[f_.origin(c.axis).index].first);
    if (d == row_dim) at = plus(at, row);
    if (d + 1 == op.coordinates.size()) at = plus(at, column);
    append(text, ", ", at);
  }
  return text;
}

// ---- roles

void KernelPrinter::print_role(const Op& op) {
  const bool first = role_ == nullptr;
  role_ = &op;
  if (first) out_.blank();
  Writer::Scopes role;
  if (op.first_warp)
    role.push_back(out_.block("{}if (warp >= {})", first ? "" : "else ", op.first_warp));
  else if (!first)
    role.push_back(out_.block("else"));
  if (op.registers)
    out_.line("fc::{}_registers<{}>();", op.registers < op.registers_at_start ? "shrink" : "grow",
              op.registers);
  const auto begins = begins_;
  work_ = work_of(f_, op);
  print_block(op.body);
  begins_ = begins;
}

void KernelPrinter::print_wait_products(const Op& op) {
  out_.line("fc::wait_products<{}>();", op.pending);
  for (std::size_t i = 0; i < op.results.size(); ++i) {
    storage_[op.results[i].index] = storage_[op.operands[i].index];
    out_.line("fc::pin({});", storage_[op.results[i].index]);
  }
}

// ---- stores

/// Each warpgroup hands its 64 rows to the copy engine, or its columns of 64 rows.
void KernelPrinter::print_bulk_store(const Op& op) {
  const Op& staging = *f_.definition(op.operands[0]);
  const Buffer& buffer = f_[staging.buffer];
  const int size = size_of(buffer.dtype), groups = f_[staging.operands[0]].layout.axes[1].warps,
            share = buffer.columns / groups;
  const char* function = op.accumulation == Accumulation::none        ? "store_box"
                         : op.accumulation == Accumulation::any_order ? "add_box<false>"
                                                                      : "add_box<true>";
  out_.comment(fmt::format("store {}", f_[op.tensor].name));
  auto one = out_.block("if (thread % {} == 0)", group_threads);
  for (const ChunkLoop& loop : chunk_loops(buffer))
    for (int panel = 0; panel < loop.panels / groups; ++panel) {
      const int column = loop.first_column + panel * loop.width;
      const int offset = size * buffer.rows * column;
      const std::string first =
          groups > 1 ? fmt::format("warp / 4 * {} + {}", share, column) : std::to_string(column);
      out_.line("fc::{}({}, {}{} + warp / 4 * {}, {});", function, map_of(op, 64, loop.width),
                storage_[op.operands[0].index], plus(offset),
                groups > 1 ? size * buffer.rows * share : 64 * loop.width * size,
                box_coordinates(op, groups > 1 ? "0" : "warp / 4 * 64", first));
    }
  out_.line("fc::commit_stores();");
}

}  // namespace flashcore
