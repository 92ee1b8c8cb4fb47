// Products of wgmma: one instruction for 64 rows, all columns of a panel or of a tile, and 16 terms of the sum.
#include "codegen/print/kernel_printer.h"

namespace flashcore {

using namespace ir;

namespace {

/// Bytes from the start of a tile to a panel.
int panel_offset(const Buffer& buffer, int column) { return 2 * buffer.rows * column; }

std::string plus_bytes(const std::string& base, int bytes) {
  return bytes ? fmt::format("{} + {}", base, bytes) : base;
}

}  // namespace

void KernelPrinter::print_warpgroup_dot(const Op& op) {
  const ValueId value = op.results[0], left = op.operands[0];
  const bool left_in_registers = f_[left].home.space == Space::operand;
  std::string text = fmt::format("dot({}, {})", label(left), label(op.operands[1]));
  if (op.operands.size() == 3) text = fmt::format("{} + {}", label(op.operands[2]), text);
  out_.comment(fmt::format("{} = {}, started", f_[value].name.empty() ? "product" : f_[value].name, text));
  const bool adds = op.operands.size() == 3;
  if (adds)
    start_sum(op);
  else
    declare(value);
  const std::string d = storage_[value.index];
  const SharedOperand b = shared_operand(op.operands[1], /*in_place=*/false);
  const SharedOperand a = left_in_registers ? SharedOperand{} : shared_operand(left, /*in_place=*/false);
  const std::string type = f_[left].type.dtype == DType::f16 ? "fc::f16" : "fc::bf16";
  const int terms = f_[f_[left].type.axes[1]].tile, columns = f_[f_[value].type.axes[1]].tile;

  out_.line("fc::pin({});", d);
  out_.line("fc::open_products();");
  // The steps of the sum, panel by panel where an operand's rows run along it.
  struct Steps {
    int first, count, width;
  };
  std::vector<Steps> steps;
  const Buffer* along = b.transposed ? b.buffer : a.transposed ? nullptr : a.buffer;
  if (along)
    for (const ChunkLoop& loop : chunk_loops(*along))
      steps.push_back({loop.first_column / 16, loop.width * loop.panels / 16, loop.width});
  else
    steps.push_back({0, terms / 16, 64});
  // The columns that one instruction makes: all of them, or a kind of panel of an operand that lies along them.
  std::vector<ChunkLoop> parts{{0, columns, 1}};
  if (!b.transposed) parts = chunk_loops(*b.buffer);

  for (const Steps& step : steps)
    for (const ChunkLoop& part : parts) {
      const int n = b.transposed ? columns : part.width * part.panels;
      auto scope = out_.block("");
      if (a.transposed)  // a warpgroup's rows of the product are one panel
        out_.line("const fc::u64 a = fc::matrix({} + warp / 4 * {}, 64, 0);", a.base, panel_offset(*a.buffer, 64));
      else if (a.buffer)
        out_.line("const fc::u64 a = fc::matrix({} + warp / 4 * {}, {}, 0);",
                  plus_bytes(a.base, panel_offset(*a.buffer, step.first * 16)), 64 * step.width * 2, step.width);
      if (b.transposed)
        out_.line("const fc::u64 b = fc::matrix({}, {}, 0);",
                  plus_bytes(b.base, panel_offset(*b.buffer, step.first * 16)), step.width);
      else
        out_.line("const fc::u64 b = fc::matrix({}, {}, {});",
                  plus_bytes(b.base, panel_offset(*b.buffer, part.first_column)), part.width,
                  part.panels > 1 ? 2 * b.buffer->rows * part.width : 0);
      auto k = out_.unrolled("k", step.count, false);
      // 16 terms further on: 32 bytes in a panel, and on to the next where rows run along the sum.
      const auto down_panels = [&](const Buffer& buffer) {
        const int in_panel = step.width / 16;
        if (step.count == in_panel) return std::string("k * 32");
        return fmt::format("k / {0} * {1} + k % {0} * 32", in_panel, 2 * buffer.rows * step.width);
      };
      // 16 lines in a panel whose lines run across the sum.
      const auto down_lines = [&](int width) {
        return step.first ? fmt::format("({} + k) * {}", step.first, 16 * width * 2)
                          : fmt::format("k * {}", 16 * width * 2);
      };
      const std::string left_text =
          a.transposed ? fmt::format("fc::advance(a, {})", down_lines(64))
          : a.buffer   ? fmt::format("fc::advance(a, {})", down_panels(*a.buffer))
                       : fmt::format("{}[0][{}]", storage_[left.index],
                                     step.first ? fmt::format("{} + k", step.first) : "k");
      const std::string right_text =
          fmt::format("fc::advance(b, {})", b.transposed ? down_panels(*b.buffer) : down_lines(part.width));
      out_.line("fc::multiply_warpgroup<{}, {}, {}{}>({}[0]{}, {}, {}, {});", n, type, !b.transposed,
                a.transposed ? ", true" : "", d,
                part.first_column && !b.transposed ? fmt::format(" + {}", part.first_column / 8) : "",
                left_text, right_text, adds || step.first ? "true" : "k > 0");
    }
  out_.line("fc::commit_products();");
}

}  // namespace flashcore
