// wgmma: one statement for 64 rows, all columns of a panel or of a tile, and all terms of the sum,
// or those in panels of one width. Four warps issue it and go on; the tensor core reads shared
// memory by itself.
#include <algorithm>

#include "codegen/instructions/instruction.h"
#include "codegen/instructions/matrix_address.h"
#include "codegen/instructions/product.h"
#include "codegen/layout/chunk_loops.h"

namespace flashcore {
namespace {

using ir::Buffer;

constexpr int most_columns = 256;  ///< of one instruction

/// Bytes from the start of a tile to a panel.
int panel_offset(const Buffer& buffer, int column) { return 2 * buffer.rows * column; }

void print_product(const Product& p) {
  const ProductOperand &a = p.left, &b = p.right;
  const std::string& d = p.sums;
  // The warpgroups divide the rows of the product among them, or its columns, in whole panels or
  // halves of one.
  const int column_groups = p.columns.warps, columns = p.columns.length() / column_groups;
  const bool divides_columns = column_groups > 1;
  const auto of_group = [](int bytes) { return fmt::format(" + warp / 4 * {}", bytes); };
  const auto own_rows = [&](int bytes) { return divides_columns ? "" : of_group(bytes); };
  if (!p.pinned) p.out.line("fc::pin({});", d);
  p.out.line("fc::fence_products();");
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
    steps.push_back({0, p.terms / 16, 64});
  // The columns that one instruction makes: as many as it can, and where the rows of the right operand
  // run along them, in panels of one width.
  const std::vector<ChunkLoop> all =
      b.transposed      ? std::vector<ChunkLoop>{{0, 8, columns / 8}}
      : divides_columns ? std::vector<ChunkLoop>{{0, 64, std::max(columns / 64, 1)}}
                        : chunk_loops(*b.buffer);
  std::vector<ChunkLoop> parts;
  for (const ChunkLoop& loop : all)
    for (int panel = 0, most = most_columns / loop.width; panel < loop.panels; panel += most)
      parts.push_back({loop.first_column + panel * loop.width, loop.width,
                       std::min(most, loop.panels - panel)});

  for (const Steps& step : steps)
    for (const ChunkLoop& part : parts) {
      const int n = std::min(part.width * part.panels, columns);  // half a panel, of two groups
      auto scope = p.out.block("");
      // Where the first of the steps finds its 16 lines, in a panel whose lines run across the sum.
      const auto lines = [&](int width) { return plus(step.first * 16 * width * 2); };
      if (a.transposed)  // a warpgroup's rows of the product are one panel
        p.out.line("const fc::u64 a = fc::matrix({}{}{}, 64, 0);", a.base,
                   own_rows(panel_offset(*a.buffer, 64)), lines(64));
      else if (a.buffer)
        p.out.line("const fc::u64 a = fc::matrix({}{}{}, {}, 0);", a.base,
                   plus(panel_offset(*a.buffer, step.first * 16)), own_rows(64 * step.width * 2),
                   step.width);
      if (b.transposed)
        p.out.line(
            "const fc::u64 b = fc::matrix({}{}{}, {}, 0);", b.base,
            plus(panel_offset(*b.buffer, step.first * 16) + 2 * part.first_column * step.width),
            divides_columns ? of_group(2 * columns * step.width) : "", step.width);
      else
        p.out.line("const fc::u64 b = fc::matrix({}{}{}{}, {}, {});", b.base,
                   divides_columns
                       ? of_group(columns < 64 ? 2 * columns : panel_offset(*b.buffer, columns))
                       : "",
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
        left_text = fmt::format("{}[0]{}", a.base, plus(step.first));
      walks += b.transposed ? along(*b.buffer) : across(part.width);
      p.out.line("fc::multiply_warpgroup<{}, {}, {}, {}>({}[0]{}, {}, b, {});", n, p.element,
                 step.count, walks, d, plus(part.first_column / 8), left_text,
                 p.adds || step.first ? "true" : "false");
    }
  p.out.line("fc::commit_products();");
}

}  // namespace

constexpr TensorInstruction wgmma{
    .name = Instruction::wgmma,
    .available = &Target::wgmma,
    .instead = "instruction = mma_m16n8k16 with copy = cp_async, or target sm_90a",
    .rows = 64,
    .warps = 4,
    .asynchronous = true,
    .column_step = 8,
    .rows_once = true,  // a loop over other rows would keep their sums in other registers
    .most_warps = 12,
    .computed_right =
        ComputedOperand::none,  // warpgroups would have to meet for it, in every iteration
    .turns_computed_left = true,
    .by_copy_engine = true,
    .starts_sums = true,
    .print_product = print_product,
    .print_left_load = print_left_load_of_halves};

}  // namespace flashcore
