#include "dsl/ir/verify_declarations.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace flashcore::ir {
namespace {

void check_name(std::string_view kind, const std::string& name) {
  bool word = !name.empty() && std::isalpha(static_cast<unsigned char>(name[0])) != 0;
  for (const char c : name)
    word = word && (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_');
  if (!word)
    throw SpecError({fmt::format("{} named \"{}\"", kind, name),
                     "names become identifiers of the generated kernel",
                     "use letters, digits and underscores, a letter first",
                     {}});
}

void check_ragged(const Function& f, const Axis& axis) {
  if (axis.ragged && axis.kind == AxisKind::whole)
    throw SpecError({fmt::format("axis {} is {} and ragged", axis.name, name_of(axis.kind)),
                     "a tile along it has as many elements in every block",
                     "use tiles, parallel_tiles or parallel",
                     {}});
  if (axis.longest.empty()) return;
  if (!axis.ragged || axis.kind != AxisKind::parallel_tiles)
    throw SpecError({fmt::format("axis {} with a longest segment of {}", axis.name, axis.longest),
                     "it sizes the grid along a ragged axis of parallel_tiles",
                     "leave it out",
                     {}});
  for (const Parameter& parameter : f.parameters)
    if (parameter.name == axis.longest && parameter.dtype == DType::i32) return;
  throw SpecError({fmt::format("axis {} with a longest segment of {}", axis.name, axis.longest),
                   "no i32 scalar has this name",
                   "declare it",
                   {}});
}

/// An alias has all that the axis has which it is another name of.
void check_alias(const Function& f, const Axis& axis) {
  if (!axis.alias_of) return;
  const Axis& other = f[axis.alias_of];
  const auto refuse = [&](std::string why, std::string fix) {
    throw SpecError({fmt::format("axis {} as an alias of {}", axis.name, other.name),
                     std::move(why),
                     std::move(fix),
                     {}});
  };
  if (other.kind != AxisKind::tiles)
    refuse("an alias shares the tile that a loop is at, and no loop walks this axis",
           "declare a second axis of the same extent, or an alias of an axis of tiles");
  if (other.alias_of || axis.kind != other.kind || axis.extent != other.extent ||
      axis.tile != other.tile || axis.ragged != other.ragged)
    refuse("they differ in more than their names", "give the alias all that the axis has");
}

void check_alignment(const Axis& axis) {
  if (!axis.end_aligned || (axis.kind == AxisKind::parallel_tiles && !axis.ragged)) return;
  throw SpecError({fmt::format("axis {} is {}{} and end_aligned", axis.name, name_of(axis.kind),
                               axis.ragged ? ", ragged" : ""),
                   "its tiles are counted from its beginning",
                   "end_aligned for an axis of parallel_tiles without segments",
                   {}});
}

void check_axis(const Function& f, const Axis& axis) {
  check_ragged(f, axis);
  check_alignment(axis);
  check_alias(f, axis);
  if (axis.kind == AxisKind::whole && !axis.extent.is_static())
    throw SpecError({fmt::format("axis {} is whole and {} long", axis.name, axis.extent.text()),
                     "a whole axis has a constant length",
                     "use a number, or tiles",
                     {}});
  if (axis.extent.is_static()) return;
  if (axis.extent.times < 1 || axis.extent.plus < 0)
    throw SpecError({fmt::format("axis {} of length {}", axis.name, axis.extent.text()),
                     "a name is multiplied by 1 or more, and nothing is taken from it",
                     "use other numbers",
                     {}});
  for (const Tensor& tensor : f.tensors)
    for (const Extent& dim : tensor.dims)
      if (dim.name == axis.extent.name) return;
  throw SpecError(
      {fmt::format("no tensor has the length {} of axis {}", axis.extent.text(), axis.name),
       "a named length is read off the shapes of the tensors",
       "use a constant length",
       {}});
}

/// Blocks are numbered along every parallel axis, once.
void check_grid(const Function& f) {
  if (f.grid.empty()) return;
  for (std::size_t i = 0; i < f.axes.size(); ++i) {
    const AxisKind kind = f.axes[i].kind;
    const bool parallel = kind == AxisKind::parallel || kind == AxisKind::parallel_tiles;
    const auto times = std::count(f.grid.begin(), f.grid.end(), AxisId(i));
    if (times != (parallel && !f.axes[i].alias_of ? 1 : 0))
      throw SpecError({fmt::format("the grid has axis {} {} times", f.axes[i].name, times),
                       "blocks are numbered along each parallel axis, and along no other",
                       "name every parallel axis once",
                       {}});
  }
}

}  // namespace

void verify_declarations(const Function& f) {
  std::set<std::string> arguments, buffers;
  auto declare = [](std::set<std::string>& names, const std::string& name) {
    if (!names.insert(name).second)
      throw SpecError({fmt::format("two declarations of {}", name),
                       "axes, arguments and buffers are found by name",
                       "rename one",
                       {}});
  };
  check_name("a program", f.name);
  for (const Axis& axis : f.axes) {
    declare(arguments, axis.name);
    check_axis(f, axis);
  }
  check_grid(f);
  for (const Tensor& tensor : f.tensors) {
    declare(arguments, tensor.name);
    check_name("a tensor", tensor.name);
    for (const Extent& dim : tensor.dims) {
      if (!dim.is_static()) check_name("a length", dim.name);
      if (!dim.is_static() && dim.times != 1)
        throw SpecError(
            {fmt::format("a dimension of {} with the length {}", tensor.name, dim.text()),
             "a launch reads the name off the shape, and not every length is such a "
             "multiple",
             "give the dimension a name of its own, or multiply in an axis alone",
             {}});
    }
    if (!tensor.gathered && (!is_tile_type(tensor.dtype) || tensor.dtype == DType::i1))
      throw SpecError({fmt::format("tensor {} of type {}", tensor.name, name_of(tensor.dtype)),
                       "tiles are loaded from and stored to f16, bf16, f32 and i32",
                       "use one of them, or gather from a gathered input",
                       {}});
    if (tensor.gathered && tensor.output)
      throw SpecError({fmt::format("output {} is gathered", tensor.name),
                       "only inputs are read at computed positions",
                       "declare it as an input",
                       {}});
    if (tensor.aligned_rows && !is_tile_type(tensor.dtype))
      throw SpecError({fmt::format("gathered input {} of type {} with aligned_rows", tensor.name,
                                   name_of(tensor.dtype)),
                       "aligned rows let tiles be loaded, and tiles hold f16, bf16, f32, i32 or i1",
                       "leave aligned_rows out, or convert the tensor",
                       {}});
    if (tensor.gathered && tensor.dims.empty())
      throw SpecError({fmt::format("gathered input {} without dimensions", tensor.name),
                       "a tensor argument has at least one",
                       "pass it with one dimension of length 1",
                       {}});
  }
  for (const Parameter& parameter : f.parameters) {
    declare(arguments, parameter.name);
    check_name("a scalar", parameter.name);
    if (parameter.dtype != DType::f32 && parameter.dtype != DType::i32)
      throw SpecError(
          {fmt::format("parameter {} of type {}", parameter.name, name_of(parameter.dtype)),
           "scalar arguments are f32 or i32",
           "use one of them",
           {}});
  }
  for (const Buffer& buffer : f.buffers) {
    declare(buffers, buffer.name);
    if (buffer.rows < 1 || buffer.columns < 1 || buffer.stages < 1)
      throw SpecError({fmt::format("buffer {} of {} slots of {} x {}", buffer.name, buffer.stages,
                                   buffer.rows, buffer.columns),
                       "every number is at least 1",
                       "give it the rows and columns of a tile, and one stage or more",
                       {}});
  }
}

}  // namespace flashcore::ir
