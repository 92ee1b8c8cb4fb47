// Blocks of several tiles: how one comes from a tile to the next. A persistent block takes them
// from the tiles of all blocks in one row; any other may have a run of positions, heads for
// instance, along which its tile stays where it is.
//
// In rounds every block knows its tiles by itself. From a counter the producer draws them, each
// once it has asked for all loads of the one before, and hands the numbers on to the consumers by a
// ring of two.
#include "codegen/analysis/position_axis.h"
#include "codegen/print/kernel_printer.h"

namespace flashcore {

using namespace ir;

AxisId KernelPrinter::walked_axis() const {
  return schedule_.positions_per_block > 1 ? last_position_axis(f_) : AxisId{};
}

bool KernelPrinter::draws_tiles() const { return rings_.drawn_at > 0; }

/// The loop over tiles around all that a role does. Behind a tile's work stands `print_drawn_tile`.
void KernelPrinter::open_tiles(Writer::Scopes& scopes) {
  if (const AxisId axis = walked_axis()) {
    const std::string name = names_.unique(f_[axis].name);
    scopes.push_back(
        out_.block("for (int {0} = {1}; {0} < {2}; ++{0})", name, walked_begin_, walked_end_));
    begins_[axis.index] = name;
    return;
  }
  print_block_count();
  if (draws_tiles()) {
    drawn_.slot = names_.unique("drawn_slot");
    drawn_.phase = names_.unique("drawn_phase");
    out_.line("int {} = 0, {} = 0;", drawn_.slot, drawn_.phase);
    scopes.push_back(out_.block("for (int tile = fc::block_x(); tile < {};)", block_count_));
    return print_tile_of_block("tile");
  }
  // Every other round backwards: who got a long tile in one gets a short one in the next.
  out_.line("int turn = fc::grid_x() - 1 - fc::block_x();");
  scopes.push_back(
      out_.block("for (int first = 0; first < {}; first += fc::grid_x())", block_count_));
  out_.line("turn = fc::grid_x() - 1 - turn;");
  out_.line("if (first + turn >= {}) break;", block_count_);
  print_tile_of_block("first + turn");
}

void KernelPrinter::print_drawn_tile(bool produces) {
  if (!draws_tiles()) return;
  const std::string number = fmt::format(
      "shared + {} + {} * 4", rings_.drawn_at + 16 * RingBarriers::drawn_slots, drawn_.slot);
  if (produces) {
    out_.line("tile = fc::next_tile(p.tile_counter, tile, {});", block_count_);
    out_.line("fc::await_phase({}, {} ^ 1);", in_slot(drawn_.empty, drawn_.slot), drawn_.phase);
    out_.line("fc::store_shared({}, static_cast<fc::u32>(tile));", number);
    out_.line("fc::arrive({});", in_slot(drawn_.full, drawn_.slot));
  } else {
    out_.line("fc::await_phase({}, {});", in_slot(drawn_.full, drawn_.slot), drawn_.phase);
    out_.line("tile = fc::uniform(static_cast<int>(fc::load_shared_word({})));", number);
    // Each thread for itself: all have read the number before the next is written there.
    out_.line("fc::arrive({});", in_slot(drawn_.empty, drawn_.slot));
  }
  print_next_slot(RingBarriers::drawn_slots, drawn_);
}

void KernelPrinter::print_block_count() {
  std::string count;
  for (AxisId axis : plan_grid()) {
    const std::string along = blocks_along(axis);
    count += fmt::format("{}{}", count.empty() ? "" : " * ",
                         along.find(' ') == std::string::npos ? along : fmt::format("({})", along));
  }
  block_count_ = names_.unique("block_count");
  out_.line("const int {} = {};", block_count_, count.empty() ? "1" : count);
  if (schedule_.grid_order == GridOrder::sections) print_section(plan_grid());
}

/// Bytes that a block's loops read along `axis`, for each of its elements.
int KernelPrinter::looped_bytes(AxisId axis) const {
  int bytes = 0;
  for_each_op(f_, f_.body, [&](const Op& op, BlockId) {
    if (op.code != OpCode::fill_slot || op.coordinates.size() < 2) return;
    for (const Coordinate& c : op.coordinates)
      if (c.axis == axis) bytes += f_[op.buffer].columns * size_of(f_[op.buffer].dtype);
  });
  return bytes;
}

/// Positions whose looped tiles have room in L2 together. Half of it: blocks do not keep in step.
void KernelPrinter::print_section(const std::vector<AxisId>& order) {
  constexpr int budget = 32 << 20;
  std::string bytes;
  for (std::size_t i = 0; i < f_.axes.size(); ++i) {
    const AxisId axis(i);
    const int each = f_[axis].kind == AxisKind::tiles ? looped_bytes(axis) : 0;
    if (each)
      bytes += fmt::format("{}fc::max(1, {}) * {}", bytes.empty() ? "" : " + ", extent(axis), each);
  }
  std::string positions, tiles;
  for (AxisId axis : order) {
    std::string& count = f_[axis].kind == AxisKind::parallel_tiles ? tiles : positions;
    const std::string along = blocks_along(axis);
    count += fmt::format("{}({})", count.empty() ? "" : " * ", along);
  }
  section_ = names_.unique("section");
  section_blocks_ = names_.unique("section_blocks");
  section_positions_ = names_.unique("positions");
  out_.comment(
      "as many positions as have room in L2 take turns at one tile before all go on to the next");
  out_.line("const int {} = {};", section_positions_, positions.empty() ? "1" : positions);
  out_.line("const int {} = fc::max(1, fc::min({}, {} / ({})));", section_, section_positions_,
            budget, bytes.empty() ? "1" : bytes);
  out_.line("const int {} = {} * {};", section_blocks_, section_, tiles.empty() ? "1" : tiles);
}

/// The tile that is the `number`-th of all.
void KernelPrinter::print_tile_of_block(std::string_view number) {
  const std::vector<AxisId> order = plan_grid();
  const std::string rest = names_.unique("rest");
  out_.line("fc::u32 {} = {};", rest, number);
  if (schedule_.grid_order != GridOrder::sections) {
    for (std::size_t i = 0; i < order.size(); ++i)
      print_block_index(order[i], rest, i + 1 < order.size());
    return;
  }
  const std::string begin = names_.unique("section_begin"), here = names_.unique("positions_here");
  const std::string position = names_.unique("position");
  out_.line("const int {} = {} / {} * {};", begin, rest, section_blocks_, section_);
  out_.line("const int {} = fc::min({}, {} - {});", here, section_, section_positions_, begin);
  out_.line("{} -= {} / {} * {};", rest, begin, section_, section_blocks_);
  out_.line("fc::u32 {} = {} + {} % {};", position, begin, rest, here);
  out_.line("{} /= {};", rest, here);
  // In rounds odd sections run backwards: where one ends with short tiles the next begins with
  // such.
  std::string tiles_of_position;
  for (AxisId axis : order)
    if (f_[axis].kind == AxisKind::parallel_tiles)
      tiles_of_position +=
          fmt::format("{}({})", tiles_of_position.empty() ? "" : " * ", blocks_along(axis));
  if (!tiles_of_position.empty())
    out_.line("if ({4}{0} / {1} % 2) {2} = {3} - 1 - {2};", begin, section_, rest,
              tiles_of_position, draws_tiles() ? "p.tile_counter == 0 && " : "");
  std::vector<AxisId> positions, tiles;
  for (AxisId axis : order)
    (f_[axis].kind == AxisKind::parallel_tiles ? tiles : positions).push_back(axis);
  for (std::size_t i = 0; i < positions.size(); ++i)
    print_block_index(positions[i], position, i + 1 < positions.size());
  for (std::size_t i = 0; i < tiles.size(); ++i)
    print_block_index(tiles[i], rest, i + 1 < tiles.size());
}

}  // namespace flashcore
