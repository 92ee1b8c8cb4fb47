// Which tiles a loop visits: the scan that notes it, and the way from one such tile to the next.
#include "codegen/print/kernel_printer.h"

namespace flashcore {

using namespace ir;

namespace {

std::string tile_set_call(std::string_view function, const Buffer& words,
                          const std::string& arguments) {
  return fmt::format("fc::{}<{}>({}, {})", function, words.columns, chunk_base(words, "0"),
                     arguments);
}

}  // namespace

/// A warp takes eight tiles at a time: with so many lookups in flight their latency counts once.
void KernelPrinter::print_scan(const Op& op) {
  constexpr int batch = 8;
  const Axis& axis = f_[op.axis];
  const Buffer& words = f_[op.buffer];
  const BlockId region = op.body;
  const int warps = source_.threads / 32;
  prepare_sources(region);
  out_.blank();
  out_.comment(
      fmt::format("which tiles of {} hold something visible, and something hidden", axis.name));
  const std::string group = names_.unique(axis.name + "_group"),
                    tile = names_.unique(axis.name + "_tile");
  const std::string found = names_.unique("found"), begin = names_.unique(axis.name + "_begin");
  auto groups = out_.block(
      "for (int {0} = {1} / {2} + warp; {0} < {3} && {0} * {2} < {4}; {0} += {5})", group,
      scalar(op.operands[0]), batch, words.columns, scalar(op.operands[1]), warps);
  out_.line("fc::u32 {} = 0;", found);
  {
    auto tiles = out_.unrolled("n", batch);
    out_.line("const int {} = ({} * {} + n) * {};", begin, group, batch, axis.tile);
    storage_[f_[region].arguments[0].index] = fmt::format("({} * {} + n)", group, batch);
    begins_[op.axis.index] = begin;
    print_block(region);
    const std::vector<ValueId> conditions = last_of(f_, region).operands;
    Shape shape;
    for (ValueId condition : conditions)
      if (shape.axes.empty() && f_[condition].layout.space == Space::registers)
        shape = shape_of(condition);
    const Loops cursor = open_loops(shape);
    out_.line("{} |= ({} ? 1u : 0u) << n | ({} ? 0u : 256u) << n;", found,
              element(conditions[0], cursor), element(conditions[1], cursor));
    begins_.erase(op.axis.index);
  }
  out_.line("fc::note_tiles({} + {} * 4, {}, lane);", chunk_base(words, "0"), group, found);
}

void KernelPrinter::print_next_tile(const Op& op) {
  const ValueId from = op.operands[0];
  std::string& name = storage_[op.results[0].index];
  if (next_tile_.first == from) {
    name = next_tile_.second;  // what the loop itself goes on with
    return;
  }
  const std::string arguments = fmt::format("{}, {}", scalar(from), scalar(op.operands[1]));
  name = constant(
      "int", f_[op.results[0]].name,
      tile_set_call(op.descending ? "tile_before" : "tile_after", f_[op.buffer], arguments));
}

void KernelPrinter::print_full_tile(const Op& op) {
  storage_[op.results[0].index] = constant(
      "bool", "full", "!" + tile_set_call("tile_is_masked", f_[op.buffer], scalar(op.operands[0])));
}

/// The tile that a loop comes to behind another.
std::string KernelPrinter::tile_behind(const Op& loop, const std::string& tile) {
  const auto [begin, end] = loop_bounds(loop);
  return tile_set_call(loop.descending ? "tile_before" : "tile_after", f_[loop.buffer],
                       fmt::format("{}, {}", tile, loop.descending ? begin : end));
}

}  // namespace flashcore
