#include "runtime/reference/binding.h"

#include <fmt/format.h>

#include "dsl/error.h"

namespace flashcore {

Binding::Binding(const ir::Function& f, std::span<const TensorView> tensors,
                 std::span<const ScalarValue> scalars)
    : tensors_(tensors), scalars_(scalars) {
  if (tensors.size() != f.tensors.size() || scalars.size() != f.parameters.size())
    throw DeviceError(
        {fmt::format("{} with {} arrays and {} numbers", f.name, tensors.size(), scalars.size()),
         fmt::format("the program has {} and {}", f.tensors.size(), f.parameters.size()),
         "give them in the order of the program",
         {}});
  for (std::size_t i = 0; i < tensors.size(); ++i) bind(f.tensors[i], tensors[i]);
  for (std::size_t i = 0; i < scalars.size(); ++i)
    if (scalars[i].dtype() != f.parameters[i].dtype)
      throw DeviceError(
          {fmt::format("{} of type {}", f.parameters[i].name, name_of(scalars[i].dtype())),
           fmt::format("the program takes {}", name_of(f.parameters[i].dtype)),
           "convert it",
           {}});
}

void Binding::bind(const ir::Tensor& tensor, const TensorView& view) {
  if (view.device != cpu_device)
    throw DeviceError({fmt::format("{} on GPU {}", tensor.name, view.device),
                       "the reference reads memory of the host",
                       "copy it there first",
                       {}});
  if (view.dtype != tensor.dtype || view.rank != static_cast<int>(tensor.dims.size()))
    throw DeviceError(
        {fmt::format("{} of type {} with {} dimensions", tensor.name, name_of(view.dtype),
                     view.rank),
         fmt::format("the program takes {} with {}", name_of(tensor.dtype), tensor.dims.size()),
         "convert or reshape it",
         {}});
  for (std::size_t i = 0; i < tensor.dims.size(); ++i) {
    const Extent& dim = tensor.dims[i];
    const std::int64_t given = view.shape[i];
    const std::int64_t wanted =
        dim.is_static() ? dim.value
                        : lengths_.try_emplace(dim.name, given - dim.plus).first->second + dim.plus;
    if (given != wanted)
      throw DeviceError({fmt::format("dimension {} of {} is {} long", i, tensor.name, given),
                         dim.is_static()
                             ? fmt::format("the program takes {}", wanted)
                             : fmt::format("another array has {} = {}", dim.text(), wanted),
                         "give arrays of one shape",
                         {}});
  }
}

}  // namespace flashcore
