// The kernel's one parameter, a struct in constant memory, and how blocks are numbered.
#include <algorithm>
#include <limits>
#include <utility>

#include "codegen/layout/register_split.h"
#include "codegen/print/kernel_printer.h"
#include "codegen/text/index_text.h"

namespace flashcore {

using namespace ir;

namespace {

/// The number of a scalar parameter; -1 where none has the name.
int scalar_named(const Function& f, const std::string& name) {
  const auto found = std::ranges::find(f.parameters, name, &Parameter::name);
  return found == f.parameters.end() ? -1 : static_cast<int>(found - f.parameters.begin());
}

}  // namespace

void KernelPrinter::collect_arguments() {
  source_.name = f_.name;
  source_.entry = entry_name(f_.name);
  source_.threads = schedule_.threads();
  source_.cluster = schedule_.cluster();
  source_.min_blocks = schedule_.blocks_per_processor;
  source_.split_registers = registers_of_block(schedule_, register_split(schedule_));
  for (const Buffer& buffer : f_.buffers)
    for (int end : {buffer.offset + buffer.bytes(), buffer.full + 8 * buffer.stages,
                    buffer.empty + 8 * buffer.stages})
      source_.shared_bytes = std::max(source_.shared_bytes, end);
  source_.persistent = any_op(f_, f_.body, [](const Op& op) {
    return op.code == OpCode::tile_loop && op.scheduler != TileScheduler::consecutive;
  });
  source_.flat_grid = f_.flat_grid;
  source_.waits_for_kernels =
      std::ranges::any_of(f_[f_.body].ops, has_code(f_, OpCode::wait_for_kernels));
  for (const Tensor& tensor : f_.tensors)
    source_.tensors.push_back(
        {tensor.name, tensor.dtype, tensor.output, tensor.dims, size_of(tensor.dtype),
         std::vector<std::int64_t>(tensor.dims.size(), std::numeric_limits<std::int64_t>::max()),
         tensor.unwritten, tensor.gathered, tensor.has_last_stride()});
  for (const Parameter& parameter : f_.parameters)
    source_.scalars.push_back({parameter.name, parameter.dtype, parameter.positive});
  for (const Axis& axis : f_.axes)
    if (!axis.longest.empty())
      source_.scalars[static_cast<std::size_t>(scalar_named(f_, axis.longest))].is_length = true;
  const auto add_extent = [&](const Extent& extent) {
    auto& known = source_.extents;
    if (!extent.is_static() && std::find(known.begin(), known.end(), extent.name) == known.end())
      known.push_back(extent.name);
  };
  for (const Axis& axis : f_.axes) add_extent(axis.extent);
  // A dimension that only scalars index has no axis; a launch still checks it.
  for (const Tensor& tensor : f_.tensors)
    for (const Extent& dim : tensor.dims) add_extent(dim);
}

void KernelPrinter::print_parameters() {
  out_.line("struct Parameters {{");
  Writer::Scope scope(out_, "};");
  std::string strides;  // of one tensor, on one line
  for (std::size_t i = 0; i < source_.parameters.size(); ++i) {
    const ParameterField& field = source_.parameters[i];
    const auto at = static_cast<std::size_t>(field.index);
    const std::string& name = fields_.name_of(field);
    switch (field.kind) {
      case ParameterField::Kind::tensor_map:
        out_.line("fc::tensor_map {};  // of {} x {}", name, source_.tensor_maps[at].rows,
                  source_.tensor_maps[at].width);
        break;
      case ParameterField::Kind::pointer:
        out_.line("{}{}* {};", f_.tensors[at].output ? "" : "const ",
                  element_type(f_.tensors[at].dtype), name);
        break;
      case ParameterField::Kind::stride: {
        append(strides, ", ", name);
        const bool last = i + 1 == source_.parameters.size();
        const ParameterField& next = source_.parameters[last ? i : i + 1];
        if (last || next.kind != field.kind || next.index != field.index)
          out_.line("fc::i64 {};  // elements", std::exchange(strides, {}));
        break;
      }
      case ParameterField::Kind::scalar:
        out_.line("{} {};", element_type(f_.parameters[at].dtype), name);
        break;
      case ParameterField::Kind::extent:
      case ParameterField::Kind::tile_counter:
        out_.line("int {};", name);
    }
  }
}

/// The length of the longest segment of a ragged axis, as a launch says it; empty if none does.
std::string KernelPrinter::longest_segment(AxisId axis) const {
  const int scalar = scalar_named(f_, f_[axis].longest);
  return scalar < 0 ? "" : fields_.scalar(static_cast<std::size_t>(scalar));
}

std::string KernelPrinter::blocks_along(AxisId id) const {
  const Axis& axis = f_[id];
  const std::string longest = longest_segment(id),
                    length = longest.empty() ? fields_.extent(axis.extent) : longest;
  if (axis.tile <= 1 && axis.kind == AxisKind::parallel) return length;
  if (axis.kind == AxisKind::parallel_tiles && axis.longest.empty() && axis.extent.is_static())
    return std::to_string((axis.extent.value + axis.tile - 1) / axis.tile);
  return fmt::format("({} + {}) / {}", length, axis.tile - 1, axis.tile);
}

/// The number of a block along an axis, and where its tile, or its positions, begin.
void KernelPrinter::print_block_index(AxisId id, const std::string& index, bool needs_count) {
  const Axis& axis = f_[id];
  const bool tiled = axis.kind == AxisKind::parallel_tiles, several = axis.tile > 1;
  const std::string name = names_.unique(tiled     ? axis.name + "_tile"
                                         : several ? axis.name + "_run"
                                                   : axis.name);
  std::string count;
  if (needs_count || axis.descending) {
    // Unsigned numbers divide in half the instructions.
    count = constant(needs_count ? "fc::u32" : "int", name + "_count", blocks_along(id));
  }
  std::string text = needs_count ? fmt::format("{} % {}", index, count) : index;
  if (axis.descending) text = fmt::format("{} - 1 - {}", count, text);
  // The compiler does not see that a quotient is the same for all threads, and would keep it in
  // registers of each.
  if (f_.flat_grid) text = fmt::format("fc::uniform({})", text);
  out_.line("const int {} = {};", name, text);
  if (needs_count) out_.line("{} /= {};", index, count);
  begins_[id.index] = name;
  if (tiled || several) print_position(id, name);
}

/// Where a tile of an axis begins.
void KernelPrinter::print_position(AxisId axis, const std::string& tile) {
  const int size = f_[axis].tile;
  begins_[axis.index] =
      constant("int", f_[axis].name + "_begin",
               f_[axis].end_aligned
                   ? fmt::format("{} - ({} - {}) * {}", extent(axis), tile_count(axis), tile, size)
                   : fmt::format("{} * {}", tile, size));
}

/// Where a block lies by its own number; one of several tiles finds out from theirs.
void KernelPrinter::print_grid() {
  const AxisId shared = first_axis_of(f_, AxisKind::parallel_tiles);
  for (AxisId axis : f_.grid) {
    const int tiles = axis == shared ? schedule_.multicast_blocks : 1;
    source_.grid.push_back({f_[axis].name, f_[axis].extent, std::max(1, f_[axis].tile) * tiles,
                            scalar_named(f_, f_[axis].longest)});
  }
  if (source_.cluster > 1)
    cluster_rank_ = constant("int", "rank", fmt::format("fc::block_x() % {}", source_.cluster));
  if (source_.persistent) return;
  // Three axes are CUDA's own dimensions; what more there are share the third. In a flat grid all
  // share the first.
  std::string dimensions[] = {"fc::block_x()", "fc::block_y()", "fc::block_z()"};
  if (source_.cluster > 1) dimensions[0] += fmt::format(" / {}", source_.cluster);
  const std::size_t own = f_.flat_grid ? 0 : f_.grid.size() > 3 ? 2 : 3;
  if (f_.grid.size() > own) out_.line("fc::u32 block = {};", dimensions[own]);
  for (std::size_t i = 0; i < f_.grid.size(); ++i) {
    const bool shared = i >= own, last = i + 1 == f_.grid.size();
    print_block_index(f_.grid[i], shared ? "block" : dimensions[i], shared && !last);
  }
}

void KernelPrinter::require_alignment(TensorId tensor, int bytes) {
  int& alignment = source_.tensors[tensor.index].alignment;
  alignment = std::max(alignment, bytes);
}

}  // namespace flashcore
