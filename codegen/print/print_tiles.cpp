// The tiles of a block: the loop over them, and where each lies; waiting for the note of the block in
// front that adds to the same elements, and noting how far this one has come.

#include "codegen/print/kernel_printer.h"
#include "codegen/text/index_text.h"

namespace flashcore {

using namespace ir;

/// The number of a block, or how many blocks there are, counted in clusters where these share loads.
std::string KernelPrinter::in_clusters(const char* of_blocks) const {
  const std::string blocks = fmt::format("fc::{}()", of_blocks);
  const int together = schedule_.multicast_blocks;
  return together == 1 ? blocks : fmt::format("{} / {}", blocks, together);
}

void KernelPrinter::print_tile_loop(const Op& loop) {
  const auto begins = begins_;
  const ValueId tile = f_[loop.body].arguments[0];
  const std::string name = names_.unique(f_[tile].name);
  const auto [begin, end] = loop_bounds(loop);
  storage_[tile.index] = name;
  Writer::Scopes scopes;
  const std::string number = in_clusters("block_x"), all = in_clusters("grid_x");
  switch (loop.scheduler) {
    case TileScheduler::consecutive:
      out_.comment("positions of this block");
      scopes.push_back(out_.block("for (int {0} = {1}; {0} < {2}; ++{0})", name, begin, end));
      break;
    case TileScheduler::serpentine: {
      out_.comment("tiles of all blocks, every other wave of blocks backwards");
      const std::string in_wave = names_.unique("in_wave"), first = names_.unique("first");
      out_.line("int {} = {} - 1 - {};", in_wave, all, number);
      scopes.push_back(out_.block("for (int {0} = 0; {0} < {1}; {0} += {2})", first, end, all));
      out_.line("{0} = {1} - 1 - {0};", in_wave, all);
      out_.line("if ({} + {} >= {}) break;", first, in_wave, end);
      storage_[tile.index] = fmt::format("({} + {})", first, in_wave);
      break;
    }
    case TileScheduler::dynamic:
      out_.comment("tiles of all blocks, each the next that no other block has");
      scopes.push_back(out_.block("for (int {0} = {1}; {0} < {2};)", name, number, end));
      break;
  }
  print_block(loop.body);
  const Op& yield = last_of(f_, loop.body);
  if (!yield.operands.empty() && scalar(yield.operands[0]) != name)
    out_.line("{} = {};", name, scalar(yield.operands[0]));
  begins_ = begins;
}

/// The next tile takes over the variable of the one before, of which nothing is asked any more.
void KernelPrinter::print_draw(const Op& op) {
  const std::string tile = scalar(op.operands[0]);
  storage_[op.results[0].index] = tile;
  out_.line("{0} = fc::next_tile({1}, {0}, {2}, {3});", tile, fields_.tile_counter(),
            scalar(op.operands[1]), in_clusters("grid_x"));
}

/// Unsigned numbers divide in half the instructions of signed ones, and the divisor alone makes it so.
void KernelPrinter::print_divide(const Op& op) {
  const ValueId quotient = op.results[0], rest = op.results[1];
  const std::string divisor = constant("fc::u32", "divisor", scalar(op.operands[1]));
  const auto print = [&](ValueId result, char operation) {
    if (uses_[result.index] > 0)
      storage_[result.index] =
          constant("int", f_[result].name,
                   fmt::format("{} {} {}", scalar(op.operands[0]), operation, divisor));
  };
  print(rest, '%');
  print(quotient, '/');
}

void KernelPrinter::print_find_segment(const Op& op) {
  const Axis& axis = f_[op.axis];
  std::string position;
  for (std::size_t i = 0; i < 2; ++i) {
    storage_[op.results[i].index] = names_.unique(f_[op.results[i]].name);
    append(position, ", ", storage_[op.results[i].index]);
  }
  out_.line("int {};", position);
  const std::string call =
      fmt::format("fc::find_segment<{}, {}>({}, {}, {}, {})", axis.tile, axis.descending,
                  source_pointer(op), scalar(op.operands[1]), scalar(op.operands[0]), position);
  const ValueId exists = op.results[2];
  if (uses_[exists.index] > 0)
    storage_[exists.index] = constant("bool", "exists", call);
  else
    out_.line("{};", call);
}

void KernelPrinter::print_searchsorted(const Op& op) {
  const ValueId found = op.results[0];
  storage_[found.index] =
      constant("int", f_[found].name,
               fmt::format("fc::searchsorted({}, {}, {}{})", source_pointer(op),
                           scalar(op.operands[1]), scalar(op.operands[0]), role_ ? "" : ", lane"));
}

// ---- blocks that add to the same elements in order

void KernelPrinter::print_turn(const Op& op) {
  const std::string pointer = source_pointer(op);
  const Axis& blocks = f_[op.axis];
  const std::string position = scalar(op.operands[0]);
  const std::string step = fields_.stride(op.tensor, dimension_along(op, op.axis));
  const auto note_of = [&](const std::string& first) {
    return plus(pointer, step == "1" ? first : times("(" + first + ")", step));
  };
  const std::string first = begin(op.axis);
  if (op.code == OpCode::release_turn) {
    out_.line("if (thread == {}) fc::release_turn({}, {});", role_ ? role_->first_warp * 32 : 0,
              note_of(first), position);
    return;
  }
  if (!blocks.descending) {
    out_.line("if ({0} > 0) fc::wait_turn({1}, {2});", first,
              note_of(fmt::format("{} - {}", first, blocks.tile)), position);
    return;
  }
  // Blocks beyond the longest segment of a ragged axis are not launched, or end without a turn.
  const std::string longest = longest_segment(op.axis);
  std::string end = extent(op.axis);
  if (!longest.empty()) end = fmt::format("fc::min({}, {})", end, longest);
  const std::string before = fmt::format("{} + {}", first, blocks.tile);
  out_.line("if ({} < {}) fc::wait_turn({}, {});", before, end, note_of(before), position);
}

}  // namespace flashcore
