// What the copy engine moves between tensors and shared memory: boxes, as wide as a panel of the tile.
//
// A tile may come in several boxes below each other, each from a place of its own, such as keys in
// pages. The thread that loads them computes all places before it loads the first: a load is a barrier
// to the compiler, and behind it the lookup of the next page would begin when that of the last one has
// ended.
#include <algorithm>
#include <string>
#include <vector>

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
      const TensorMapArgument map = box_of(op, stores ? 64 : rows_of_box(op), panels.width);
      if (std::ranges::count(source_.tensor_maps, map) == 0) source_.tensor_maps.push_back(map);
    }
  });
}

std::string KernelPrinter::map_of(const Op& op, int rows, int width) const {
  const auto found = std::ranges::find(source_.tensor_maps, box_of(op, rows, width));
  if (found == source_.tensor_maps.end()) throw InternalError("no tensor map for a copy");
  return fields_.map(static_cast<std::size_t>(found - source_.tensor_maps.begin()));
}

/// The coordinates of a box, the dense dimension first. `computed` are the texts of those that an issue
/// computes; `row` and `column` are added to the first ones of a tile, as computed ones of several boxes
/// are not.
std::string KernelPrinter::box_coordinates(const Op& op, const std::vector<std::string>& computed,
                                           const std::string& row, const std::string& column) {
  std::string text;
  const std::size_t row_dim = row_dimension(op);
  auto last_computed = computed.rbegin();
  for (std::size_t d = op.coordinates.size(); d-- > 0;) {
    const Coordinate& c = op.coordinates[d];
    std::string at = c.computed ? *last_computed++ : c.value ? scalar(c.value) : begin(c.axis);
    if (c.axis && !c.computed) at = plus(at, segments_[f_.origin(c.axis).index].first);
    if (d == row_dim && !(c.computed && op.box_rows)) at = plus(at, row);
    if (d + 1 == op.coordinates.size()) at = plus(at, column);
    append(text, ", ", at);
  }
  return text;
}

// ---- loads

int KernelPrinter::rows_of_box(const Op& issue) const {
  const Buffer& buffer = f_[issue.buffer];
  return issue.box_rows ? issue.box_rows : buffer.rows / buffer.blocks;
}

int KernelPrinter::boxes_of_block(const Op& issue) const {
  const Buffer& buffer = f_[issue.buffer];
  return buffer.rows / buffer.blocks / rows_of_box(issue);
}

/// The boxes of a block that are looked up together, in front of the first copy of them.
int KernelPrinter::boxes_together(const Op& issue) const {
  // A thread of the producer has registers for the places of few boxes.
  const int boxes = boxes_of_block(issue), most = role_registers_ < 40 ? 4 : 8;
  int together = std::min(boxes, most);
  while (boxes % together) --together;
  return together;
}

/// A tile, as boxes of a panel each. They say themselves when they have completed. The next
/// acquired slot is another; who reads the channel itself goes on where it releases. Of a tile that
/// blocks of a cluster share, each loads some rows.
void KernelPrinter::print_boxes(const Op& op) {
  const Buffer& buffer = f_[op.buffer];
  const BufferId host = buffer.beside;
  const Ring& ring = ring_names_[host ? host : op.buffer];
  const std::string slot = op.operands.empty() ? ring.slot : scalar(op.operands[0]);
  const std::string full = in_slot(ring.full, slot), target = chunk_base(buffer, slot);
  out_.comment(fmt::format("{} <- {}", buffer.name, f_[op.tensor].name));
  int bytes = buffer.slot_bytes();
  for (const Buffer& vector : f_.buffers)
    if (vector.beside == op.buffer) bytes += vector.slot_bytes();
  const auto begin_slot = [&] {
    if (op.acquires) print_acquire(op);
    if (!host) out_.line("fc::arrive_expect_tx({}, {});", full, bytes);
  };
  const int boxes = boxes_of_block(op), together = boxes_together(op);
  BoxNames box;
  if (op.box_rows) box.index = box.number = names_.unique("box");
  if (together < boxes) {
    const std::string first = names_.unique("first_box");
    begin_slot();
    out_.line("#pragma unroll 1");
    const auto some =
        out_.block("for (int {0} = 0; {0} < {1}; {0} += {2})", first, boxes, together);
    box.number = fmt::format("({} + {})", first, box.index);
    const std::vector<std::string> places = print_places_of_boxes(op, box);
    print_copies_of_boxes(op, target, full, box, places);
    names_.release(first);
  } else {
    const std::vector<std::string> places = print_places_of_boxes(op, box);
    begin_slot();
    print_copies_of_boxes(op, target, full, box, places);
  }
  if (op.box_rows) names_.release(box.index);
  if (!ring.is_released && !host) print_next_slot(buffer.stages, ring);
}

void KernelPrinter::print_copies_of_boxes(const Op& op, const std::string& target,
                                          const std::string& full, const BoxNames& box,
                                          const std::vector<std::string>& places) {
  const auto each = op.box_rows ? out_.unrolled(box.index, boxes_together(op)) : Writer::Scope();
  print_panels(op, target, full, box.number, places);
}

/// The number of a box's first row within the tile.
std::string KernelPrinter::first_row_of(const Op& issue, const std::string& box) const {
  const Buffer& buffer = f_[issue.buffer];
  const std::string of_block =
      buffer.blocks > 1 ? times(cluster_rank_, buffer.rows / buffer.blocks) : "0";
  return issue.box_rows ? plus(times(box, issue.box_rows), of_block) : of_block;
}

/// What the region of an issue yields. Of several boxes each of these is an array with an element a
/// box, and the number of the box's first row says which rows of the tile it is.
std::vector<std::string> KernelPrinter::print_places_of_boxes(const Op& op, const BoxNames& box) {
  std::vector<std::string> places;
  if (!op.body) return places;
  const std::vector<ValueId>& yielded = last_of(f_, op.body).operands;
  if (!op.box_rows) {
    print_block(op.body);
    for (const ValueId value : yielded) places.push_back(scalar(value));
    return places;
  }
  std::string arrays;
  for (const ValueId value : yielded) {
    const std::string& called = f_[value].name;
    places.push_back(names_.unique(called.empty() ? "places" : called + "s"));
    append(arrays, ", ", fmt::format("{}[{}]", places.back(), boxes_together(op)));
  }
  out_.line("int {};", arrays);
  const auto each = out_.unrolled(box.index, boxes_together(op));
  storage_[f_[op.body].arguments[0].index] =
      constant("int", "first_row", first_row_of(op, box.number));
  print_block(op.body);
  for (std::size_t i = 0; i < yielded.size(); ++i) {
    places[i] += fmt::format("[{}]", box.index);
    out_.line("{} = {};", places[i], scalar(yielded[i]));
  }
  return places;
}

/// The part of each panel that a box fills: the rows of one of several boxes, or all that the block
/// loads.
void KernelPrinter::print_panels(const Op& op, const std::string& target, const std::string& full,
                                 const std::string& box, const std::vector<std::string>& places) {
  const Buffer& buffer = f_[op.buffer];
  const bool shared = buffer.blocks > 1;
  const int size = size_of(buffer.dtype), rows = buffer.rows / buffer.blocks;
  for (const ChunkLoop& loop : chunk_loops(buffer))
    for (int panel = 0; panel < loop.panels; ++panel) {
      const int column = loop.first_column + panel * loop.width, line = loop.width * size;
      std::string place = target + plus(size * buffer.rows * column);
      if (shared) place += " + " + times(cluster_rank_, rows * line);
      if (!box.empty()) place += " + " + times(box, op.box_rows * line);
      out_.line("fc::load_box{}({}, {}, {}, {});", shared ? "_for_cluster" : "", place,
                map_of(op, rows_of_box(op), loop.width), full,
                box_coordinates(op, places, first_row_of(op, box), std::to_string(column)));
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
                box_coordinates(op, {}, groups > 1 ? "0" : "warp / 4 * 64", first));
    }
  out_.line("fc::commit_stores();");
}

}  // namespace flashcore
