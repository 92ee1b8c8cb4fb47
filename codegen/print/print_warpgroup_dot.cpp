// Products of wgmma: one statement for 64 rows, all columns of a panel or of a tile, and all terms
// of the sum, or those in panels of one width.
#include "codegen/print/kernel_printer.h"

namespace flashcore {

using namespace ir;

namespace {

/// Bytes from the start of a tile to a panel.
int panel_offset(const Buffer& buffer, int column) { return 2 * buffer.rows * column; }

std::string plus(int offset) { return offset ? fmt::format(" + {}", offset) : ""; }

}  // namespace

void KernelPrinter::print_warpgroup_dot(const Op& op) {
  const ValueId value = op.results[0], left = op.operands[0];
  const bool left_in_registers = f_[left].home.space == Space::operand;
  std::string text = fmt::format("dot({}, {})", label(left), label(op.operands[1]));
  if (op.operands.size() == 3) text = fmt::format("{} + {}", label(op.operands[2]), text);
  out_.comment(
      fmt::format("{} = {}, started", f_[value].name.empty() ? "product" : f_[value].name, text));
  const bool adds = op.operands.size() == 3;
  if (adds)
    start_sum(op);
  else
    declare(value);
  const std::string d = storage_[value.index];
  const SharedOperand b = shared_operand(op.operands[1], /*in_place=*/false);
  const SharedOperand a =
      left_in_registers ? SharedOperand{} : shared_operand(left, /*in_place=*/false);
  const std::string_view type = element_type(f_[left].type.dtype);
  const int terms = f_[f_[left].type.axes[1]].tile, columns = f_[f_[value].type.axes[1]].tile;

  out_.line("fc::pin({});", d);
  out_.line("fc::open_products();");
  // The steps of the sum, panel by panel where an operand's rows run along it.
  struct Steps {
    int first, count, width;
  };
  std::vector<Steps> steps;
  const Buffer* with_sum = b.transposed ? b.buffer : a.transposed ? nullptr : a.buffer;
  if (with_sum)
    for (const ChunkLoop& loop : chunk_loops(*with_sum))
      steps.push_back({loop.first_column / 16, loop.width * loop.panels / 16, loop.width});
  else
    steps.push_back({0, terms / 16, 64});
  // The columns that one instruction makes: all of them, or a kind of panel of an operand that lies
  // along them.
  std::vector<ChunkLoop> parts{{0, columns, 1}};
  if (!b.transposed) parts = chunk_loops(*b.buffer);

  for (const Steps& step : steps)
    for (const ChunkLoop& part : parts) {
      const int n = b.transposed ? columns : part.width * part.panels;
      auto scope = out_.block("");
      // Where the first of the steps finds its 16 lines, in a panel whose lines run across the sum.
      const auto lines = [&](int width) { return plus(step.first * 16 * width * 2); };
      if (a.transposed)  // a warpgroup's rows of the product are one panel
        out_.line("const fc::u64 a = fc::matrix({} + warp / 4 * {}{}, 64, 0);", a.base,
                  panel_offset(*a.buffer, 64), lines(64));
      else if (a.buffer)
        out_.line("const fc::u64 a = fc::matrix({}{} + warp / 4 * {}, {}, 0);", a.base,
                  plus(panel_offset(*a.buffer, step.first * 16)), 64 * step.width * 2, step.width);
      if (b.transposed)
        out_.line("const fc::u64 b = fc::matrix({}{}, {}, 0);", b.base,
                  plus(panel_offset(*b.buffer, step.first * 16)), step.width);
      else
        out_.line("const fc::u64 b = fc::matrix({}{}{}, {}, {});", b.base,
                  plus(panel_offset(*b.buffer, part.first_column)), lines(part.width), part.width,
                  part.panels > 1 ? 2 * b.buffer->rows * part.width : 0);
      const auto along = [&](const Buffer& buffer) {
        return fmt::format("fc::along<{}, {}>", step.width, 2 * buffer.rows * step.width);
      };
      const auto across = [](int width) { return fmt::format("fc::across<{}>", width); };
      std::string left_text = "a", walks;
      if (a.buffer)
        walks = (a.transposed ? across(64) : along(*a.buffer)) + ", ";
      else
        left_text = fmt::format("{}[0]{}", storage_[left.index], plus(step.first));
      walks += b.transposed ? along(*b.buffer) : across(part.width);
      out_.line("fc::multiply_warpgroup<{}, {}, {}, {}>({}[0]{}, {}, b, {});", n, type, step.count,
                walks, d, b.transposed ? "" : plus(part.first_column / 8), left_text,
                adds || step.first ? "true" : "false");
    }
  out_.line("fc::commit_products();");
}

}  // namespace flashcore
