#include "dsl/ir/verify_declarations.h"

#include <set>
#include <string>

#include <fmt/format.h>

namespace flashcore::ir {
namespace {

void check_axis(const Function& f, const Axis& axis) {
  if (axis.kind == AxisKind::whole && !axis.extent.is_static())
    throw SpecError({fmt::format("axis {} is whole and {} long", axis.name, axis.extent.text()),
                     "a whole axis has a constant length",
                     "use a number, or tiles",
                     {}});
  if (axis.extent.is_static()) return;
  for (const Tensor& tensor : f.tensors)
    for (const Extent& dim : tensor.dims)
      if (dim == axis.extent) return;
  throw SpecError(
      {fmt::format("no tensor has the length {} of axis {}", axis.extent.text(), axis.name),
       "a named length is read off the shapes of the tensors",
       "use a constant length",
       {}});
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
  for (const Axis& axis : f.axes) {
    declare(arguments, axis.name);
    check_axis(f, axis);
  }
  for (const Tensor& tensor : f.tensors) {
    declare(arguments, tensor.name);
    if (tensor.dtype == DType::i1)
      throw SpecError({fmt::format("tensor {} of type i1", tensor.name),
                       "conditions are never stored",
                       "use i32",
                       {}});
  }
  for (const Parameter& parameter : f.parameters) {
    declare(arguments, parameter.name);
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
                       "",
                       {}});
  }
}

}  // namespace flashcore::ir
