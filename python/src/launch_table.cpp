#include "python/src/launch_table.h"

#include "python/src/launch_arguments.h"
#include "runtime/launch_errors.h"

namespace flashcore::python {

namespace py = pybind11;

LaunchTable::LaunchTable(py::object first, bool for_all)
    : first_(std::move(first)), for_all_(for_all) {}

std::size_t LaunchTable::Hash::operator()(const Shapes& shapes) const {
  std::uint64_t hash = shapes.size();
  for (const std::int64_t value : shapes) {
    hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 32;
  }
  return hash;
}

// Of inputs: outputs have shapes that follow from theirs, or are refused by the launch.
const LaunchTable::Shapes& LaunchTable::shapes_of(std::span<const TensorView> tensors,
                                                  std::int64_t also) {
  asked_.assign(1, also);
  const KernelSource& source = first_.kernel->source();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (source.tensors[i].output) continue;
    const auto begin = tensors[i].shape.begin();
    asked_.push_back(tensors[i].rank);
    asked_.insert(asked_.end(), begin, begin + tensors[i].rank);
  }
  return asked_;
}

bool LaunchTable::launch(const py::tuple& arrays, const py::tuple& scalars, py::handle stream,
                         std::int64_t also) {
  try {
    const LaunchArguments arguments(first_.kernel->source(), arrays, scalars, stream);
    if (for_all_) {
      first_.kernel->launch(arguments);
      return true;
    }
    const auto found = kernels_.find(shapes_of(arguments.tensors(), also));
    if (found == kernels_.end()) return false;
    // The entry may be gone by the time that the launch returns, which it makes without the GIL.
    const Held held = found->second;
    held.kernel->launch(arguments);
    return true;
  } catch (const LayoutError&) {
    return false;
  }
}

void LaunchTable::add(const py::tuple& arrays, const py::tuple& scalars, std::int64_t also,
                      py::object kernel) {
  if (for_all_) return;
  const LaunchArguments arguments(first_.kernel->source(), arrays, scalars, py::none());
  if (kernels_.size() >= most_shapes) kernels_.clear();
  kernels_.insert_or_assign(shapes_of(arguments.tensors(), also), Held(std::move(kernel)));
}

}  // namespace flashcore::python
