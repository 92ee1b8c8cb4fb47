#include "python/src/kept_workspace.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <utility>

#include "dsl/error.h"
#include "python/src/arrays.h"
#include "runtime/kernel.h"
#include "runtime/module_plan.h"

namespace flashcore::python {

namespace py = pybind11;

namespace {
constexpr std::size_t step = ModulePlan::workspace_alignment;
}  // namespace

KeptWorkspace::KeptWorkspace(int device, CudaStream stream, std::size_t bytes,
                             const Allocate& make_tensor)
    : device_(device) {
  const Driver& driver = Driver::get();
  // Where the driver has a complaint about the stream, the launch will have it as well.
  const bool keeps =
      bytes <= most && !is_captured(driver, stream) && driver.cuStreamGetId(stream, &stream_) == 0;
  if (!keeps) {
    memory_ = allocate(make_tensor, bytes);
    return;
  }
  slot_ = &slot_of(device, stream_);
  memory_ = std::exchange(slot_->memory, {});
  if (memory_.bytes < bytes) {
    memory_ = {};  // before the larger one is allocated
    memory_ = allocate(make_tensor, std::max(least, std::bit_ceil(bytes + step)) - step);
  }
}

KeptWorkspace::~KeptWorkspace() {
  // Meanwhile another stream may have taken the slot, and another thread given its memory back.
  if (slot_ != nullptr && slot_->device == device_ && slot_->stream == stream_ &&
      slot_->memory.bytes < memory_.bytes)
    std::swap(slot_->memory, memory_);
}

KeptWorkspace::Slot& KeptWorkspace::slot_of(int device, unsigned long long stream) {
  // Never destroyed: torch may be gone by then. A stream beyond the last takes that of the one that
  // came first.
  static auto* const slots = new std::array<Slot, 8>;
  static std::size_t next = 0;
  const auto known = std::find_if(slots->begin(), slots->end(), [&](const Slot& slot) {
    return slot.device == device && slot.stream == stream;
  });
  if (known != slots->end()) return *known;
  Slot& slot = (*slots)[next++ % slots->size()];
  slot = {.device = device, .stream = stream, .memory = {}};
  return slot;
}

KeptWorkspace::Memory KeptWorkspace::allocate(const Allocate& make_tensor, std::size_t bytes) {
  py::object tensor = make_tensor(bytes + step);
  TensorView view;
  if (!ArrayReader(py::none()).read_new(tensor, view))
    throw InternalError("a tensor without memory");
  const auto address = reinterpret_cast<std::uintptr_t>(view.data);
  return {std::move(tensor), reinterpret_cast<void*>((address + step - 1) / step * step), bytes};
}

}  // namespace flashcore::python
