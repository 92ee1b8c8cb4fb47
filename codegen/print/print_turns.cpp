// Blocks that add to the same elements in order: waiting for the note of the block in front, and
// noting how far this one has come.
#include "codegen/print/kernel_printer.h"

namespace flashcore {

using namespace ir;

/// Where the positions of the blocks that take a turn end. Blocks beyond the longest segment of a
/// ragged axis are not launched, or end without a turn.
std::string KernelPrinter::end_of_blocks(AxisId axis) const {
  const int longest = scalar_named(f_[axis].longest);
  if (longest < 0) return extent(axis);
  return fmt::format("fc::min({}, {})", extent(axis),
                     fields_.scalar(static_cast<std::size_t>(longest)));
}

void KernelPrinter::print_turn(const Op& op) {
  const std::string pointer = source_pointer(op);
  const Axis& blocks = f_[op.axis];
  const std::size_t dim = dimension_along(op, op.axis);
  const std::string position = scalar(op.operands[0]);
  const auto note_of = [&](const std::string& first) {
    const std::string step = stride(op.tensor, dim);
    return step == "1" ? fmt::format("{} + {}", pointer, first)
                       : fmt::format("{} + ({}) * {}", pointer, first, step);
  };
  const std::string first = begin(op.axis);
  if (op.code == OpCode::release_turn) {
    out_.line("if (thread == {}) fc::release_turn({}, {});", role_ ? role_->first_warp * 32 : 0,
              note_of(first), position);
    return;
  }
  if (blocks.descending)
    out_.line("if ({0} + {1} < {2}) fc::wait_turn({3}, {4});", first, blocks.tile,
              end_of_blocks(op.axis), note_of(fmt::format("{} + {}", first, blocks.tile)),
              position);
  else
    out_.line("if ({0} > 0) fc::wait_turn({1}, {2});", first,
              note_of(fmt::format("{} - {}", first, blocks.tile)), position);
}

}  // namespace flashcore
