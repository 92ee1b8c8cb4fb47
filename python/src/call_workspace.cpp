#include "python/src/call_workspace.h"

#include <cstdint>

#include "python/src/arrays.h"
#include "runtime/module_plan.h"

namespace flashcore::python {

namespace py = pybind11;

void* CallWorkspace::reserve(std::size_t bytes) {
  const py::gil_scoped_acquire gil;
  if (device_ >= 0 && ArrayReader::makes_bytes(like_)) {
    kept_.emplace(device_, launched_on_, bytes, [&](std::size_t size) -> py::object {
      if (stream_.is_none()) return ArrayReader::bytes_beside(like_, size);
      return allocate_(like_, size, stream_);  // torch's current stream is the caller's meanwhile
    });
    return kept_->data();
  }
  // Frameworks align arrays in CPU memory less than workspaces have to be.
  constexpr std::size_t step = ModulePlan::workspace_alignment;
  array_ = allocate_(like_, bytes + step, stream_);
  if (array_.is_none()) {
    of_driver_.emplace(device_, launched_on_);
    return of_driver_->reserve(bytes);
  }
  ArrayReader reader(stream_);
  const auto address =
      reinterpret_cast<std::uintptr_t>(reader.read(array_, "workspace", 0, /*output=*/true).data);
  return reinterpret_cast<void*>((address + step - 1) / step * step);
}

}  // namespace flashcore::python
